#!/usr/bin/env python3
"""Draws a timeline in Chrome's trace-event format as a picture: a row a lane, a box a task.

draw_timeline.py TRACE.json PICTURE.svg [TITLE]"""
import json
import math
import sys
from xml.sax.saxutils import escape

COLORS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2"]
WIDTH, LEFT, TOP, ROW = 960, 150, 44, 34


def color(i):
    """The color of name i. Beyond the list, hues follow the golden angle, so any number of them lie apart."""
    return COLORS[i] if i < len(COLORS) else f"hsl({i * 137.508 % 360:.0f}, 55%, {(40, 62, 78)[i % 3]}%)"


def legend(names, top):
    """A box and a name each, in as many lines as they need, and where these end."""
    svg, left, right, at, y = [], LEFT, WIDTH - 20, LEFT, top
    for i, name in enumerate(names):
        width = 40 + 8 * len(name)
        if at > left and at + width > right:
            at, y = left, y + 20
        svg.append(f'<rect x="{at}" y="{y}" width="12" height="12" fill="{color(i)}"/>'
                   f'<text x="{at + 18}" y="{y + 11}">{escape(name)}</text>')
        at += width
    return svg, y + 20


def ticks(length):
    """About five round numbers from 0 to length: multiples of 1, 2, or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(length / 5)) if length > 0 else 1
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= length / 5 * (1 - 1e-9)) if length > 0 else 1
    return [round(i * step, 9) for i in range(math.floor(length / step + 1e-6) + 1)]


def main(trace, picture, title=""):
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    meta = lambda name, key: {key(e): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == name}
    devices = meta("process_name", lambda e: e["pid"])
    lanes = meta("thread_name", lambda e: (e["pid"], e["tid"]))
    tasks = [e for e in events if e["ph"] == "X"]
    if not tasks:
        raise ValueError(f"{trace}: no tasks")
    rows = sorted({(e["pid"], e["tid"]) for e in tasks})
    names = list(dict.fromkeys(e["name"] for e in tasks))
    begin = min(e["ts"] for e in tasks)
    end = max(e["ts"] + e["dur"] for e in tasks)
    x = lambda ts: LEFT + (ts - begin) / (end - begin) * (WIDTH - LEFT - 40)
    bottom = TOP + ROW * len(rows) + 8
    boxes, height = legend(names, bottom + 24)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
           f'font-size="13"><rect width="{WIDTH}" height="{height}" fill="white"/>'
           f'<text x="20" y="24" font-weight="bold">{escape(title)}</text>']
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        svg.append(f'<text x="20" y="{y + 20}">{escape(devices[row[0]] + " " + lanes[row])}</text>')
        for e in (e for e in tasks if (e["pid"], e["tid"]) == row):
            left, width = x(e["ts"]), x(e["ts"] + e["dur"]) - x(e["ts"])
            gap = min(0.5, width / 5)  # keeps neighboring boxes apart
            svg.append(f'<rect x="{left:.2f}" y="{y + 3}" width="{width - gap:.2f}" height="{ROW - 8}" '
                       f'fill="{color(names.index(e["name"]))}"/>')
    for ms in ticks((end - begin) / 1000):
        svg.append(f'<text x="{x(begin + 1000 * ms):.0f}" y="{bottom + 12}" text-anchor="middle" fill="#555">'
                   f'{ms:g} ms</text>')
    svg += boxes
    svg.append("</svg>\n")
    with open(picture, "w") as file:
        file.write("\n".join(svg))


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"draw_timeline.py: {error}")
