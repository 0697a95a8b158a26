"""Shared by the scripts beside it: numbers as the files hold them, and the comparison of a file with what this PyTorch
computes (--compare)."""
import json
import platform
import torch


def rounded(t):
    return [float(f'{v:.10g}') for v in t.detach().flatten().tolist()]


def seeds(shape):
    """The weights of the elements of an output of this shape in the sum whose gradients are taken."""
    count = torch.Size(shape).numel()
    return torch.tensor([(i * 7 % 11 - 5) / 5 for i in range(count)], dtype=torch.float64).reshape(shape)


def distance(found, expected):
    difference = sum((a - b) ** 2 for a, b in zip(found, expected, strict=True)) ** 0.5
    norm = sum(b * b for b in expected) ** 0.5
    return difference / norm if norm else difference


class Comparison:
    def __init__(self):
        self.lists, self.equal, self.largest, self.where = 0, 0, 0.0, ''

    def add(self, where, found, expected):
        """Compares lists of numbers by their norm; everything else has to be equal."""
        if isinstance(expected, dict):
            assert found.keys() == expected.keys(), f'{where}: {found.keys() ^ expected.keys()}'
            for name in expected:
                self.add(f'{where} / {name}' if where else name, found[name], expected[name])
        elif isinstance(expected, list) and any(isinstance(item, (dict, list)) for item in expected):
            assert len(found) == len(expected), where
            for i, item in enumerate(expected):
                self.add(f'{where} / {i}', found[i], item)
        elif isinstance(expected, list) and any(isinstance(item, float) for item in expected):
            d = distance(found, expected)
            self.lists, self.equal = self.lists + 1, self.equal + (found == expected)
            if not d <= self.largest:
                self.largest, self.where = d, where
        else:
            assert found == expected, f'{where}: {found}, expected {expected}'

    def __str__(self):
        text = f'{self.lists} lists of numbers, {self.equal} of them equal to the last digit'
        return text + (f', largest difference {self.largest:.1e} of the norm ({self.where})' if self.largest else '')


def versions():
    return f'PyTorch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}'


def compare_file(path, found):
    """Prints how far `found` is from the file's contents."""
    expected = json.loads(path.read_text())
    comparison = Comparison()
    written_by = expected.pop('torch')
    # As the file holds them.
    comparison.add('', json.loads(json.dumps(found)), expected)
    print(f'{path.name} of PyTorch {written_by}, here {versions()}:\n  {comparison}')


def write(parts):
    """One item in each line."""
    print('{"torch": ' + json.dumps(torch.__version__))
    for part, items in parts.items():
        print(', ' + json.dumps(part) + ': {')
        print(',\n'.join(json.dumps(name) + ': ' + json.dumps(item) for name, item in items.items()))
        print('}')
    print('}')
