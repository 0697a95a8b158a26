#!/usr/bin/env python3
"""Draws a folder of pictures with a folder for each class, for measurements: one shape on a rough background each.

draw_pictures.py FOLDER --classes square,ring --count 300 --size 500x375 [--format jpg] [--seed 0]

A picture depends on the seed, its class, and its number alone. Needs Pillow and NumPy.
"""
import argparse
import math
import os
import random
import zlib

import numpy
from PIL import Image, ImageDraw


def corners(count, inner=1.0, turn=0.0):
    """Returns the corners of a regular polygon, or of a star, within the unit circle."""
    points = []
    for i in range(count):
        for k, radius in enumerate([1.0] if inner == 1.0 else [1.0, inner]):
            angle = 2 * math.pi * (i + k / 2) / count + turn
            points.append((radius * math.cos(angle), radius * math.sin(angle)))
    return points


def bar(width, turn):
    return [(x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn))
            for x, y in [(-1, -width), (1, -width), (1, width), (-1, width)]]


# Polygons within the unit circle, drawn in order; the second of a pair has the color of the background.
SHAPES = {
    "triangle": [corners(3)],
    "square": [corners(4)],
    "pentagon": [corners(5)],
    "disc": [corners(24)],
    "ring": [corners(24), [(0.6 * x, 0.6 * y) for x, y in corners(24)]],
    "frame": [corners(4), [(0.6 * x, 0.6 * y) for x, y in corners(4)]],
    "star4": [corners(4, 0.35)],
    "star5": [corners(5, 0.4)],
    "star8": [corners(8, 0.5)],
    "bar": [bar(0.25, 0)],
    "cross": [bar(0.25, 0), None, bar(0.25, math.pi / 2)],
    "corner": [[(-1, -0.6), (0.6, -0.6), (0.6, 1), (0.1, 1), (0.1, -0.1), (-1, -0.1)]],
    "arrow": [[(-0.9, -0.2), (0.1, -0.2), (0.1, -0.7), (1, 0), (0.1, 0.7), (0.1, 0.2), (-0.9, 0.2)]],
    "half": [[(math.cos(a / 10 * math.pi), math.sin(a / 10 * math.pi)) for a in range(11)]],
}


def rough(size, seed):
    """Returns noise of several grain sizes, i16 around 0, from which backgrounds are cut."""
    generator = numpy.random.RandomState(seed)
    result = numpy.zeros((size, size, 3), numpy.float32)
    for grain, height in [(1, 6), (2, 8), (8, 16), (64, 40)]:
        coarse = generator.standard_normal((size // grain + 1, size // grain + 1, 3)).astype(numpy.float32) * height
        result += coarse.repeat(grain, 0).repeat(grain, 1)[:size, :size]
    return result.astype(numpy.int16)


def draw(shape, dice, width, height, noise, o):
    back = [dice.randrange(40, 216) for _ in range(3)]
    while True:
        front = [dice.randrange(256) for _ in range(3)]
        if sum(abs(a - b) for a, b in zip(front, back)) > 150:
            break
    image = Image.new("RGB", (width, height), tuple(back))
    pen = ImageDraw.Draw(image)
    radius = min(width, height) * dice.uniform(0.22, 0.42)
    x, y = dice.uniform(radius, width - radius), dice.uniform(radius, height - radius)
    turn = math.radians(dice.uniform(-o.turn, o.turn))
    cos, sin = radius * math.cos(turn), radius * math.sin(turn)
    color = front
    for polygon in SHAPES[shape]:
        if polygon is None:
            color = front if color is back else back
            continue
        pen.polygon([(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in polygon], fill=tuple(color))
        color = back if color is front else front
    left, top = dice.randrange(noise.shape[1] - width), dice.randrange(noise.shape[0] - height)
    pixels = numpy.asarray(image).astype(numpy.int16) + (noise[top:top + height, left:left + width] * o.detail).astype(numpy.int16)
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--classes", default="square,ring,star5", help=", ".join(SHAPES))
    parser.add_argument("--count", type=int, default=300, help="pictures of all classes together")
    parser.add_argument("--size", default="500x375", help="width x height")
    parser.add_argument("--format", default="jpg", choices=["jpg", "png"])
    parser.add_argument("--detail", type=float, default=1.0, help="height of the noise")
    parser.add_argument("--turn", type=float, default=180, help="most degrees that a shape is turned")
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    classes = o.classes.split(",")
    width, height = map(int, o.size.split("x"))
    noise = rough(2 * max(width, height), o.seed)
    for shape in classes:
        os.makedirs(os.path.join(o.folder, shape), exist_ok=True)
    for i in range(o.count):
        shape = classes[i % len(classes)]
        dice = random.Random(zlib.crc32(f"{o.seed} {shape} {i}".encode()))
        picture = draw(shape, dice, width, height, noise, o)
        picture.save(os.path.join(o.folder, shape, f"{i:06}.{o.format}"), quality=90)


if __name__ == "__main__":
    main()
