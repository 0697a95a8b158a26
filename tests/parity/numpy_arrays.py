#!/usr/bin/python3
"""Writes tests/parity/numpy_arrays.npz: an array [2, 3, 2] of every type that Lockstep reads, in both orders of bytes and
of elements, and versions 2 and 3 of the format. Run by hand, with Debian's python3-numpy:

  tests/parity/numpy_arrays.py tests/parity/numpy_arrays.npz

Element i in C order is 7 i - 5 if the type has a sign, otherwise 7 i, and whether i is odd for booleans.
"""
import io, sys, zipfile
import numpy as np

TYPES = ['b1', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8']


def array(code):
    i = np.arange(12)
    values = i % 2 if code == 'b1' else 7 * i if code[0] == 'u' else 7 * i - 5
    return values.astype(code).reshape(2, 3, 2)


with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as archive:
    def write(name, value, version=None):
        data = io.BytesIO()
        np.lib.format.write_array(data, value, version)
        # A fixed date: the same bytes each time.
        archive.writestr(zipfile.ZipInfo(name + '.npy'), data.getvalue(), zipfile.ZIP_DEFLATED)

    for code in TYPES:
        for byte_order in '<>':
            for order in 'CF':
                write(f'{code}{byte_order}{order}', np.asarray(array(code).astype(byte_order + code), order=order))
    write('version2', array('f4'), (2, 0))
    write('version3', array('f4'), (3, 0))
    write('scalar', np.float32(2.5).reshape(()))
    write('empty', np.zeros((0, 3), 'f4'))
