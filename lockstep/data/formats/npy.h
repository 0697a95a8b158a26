// NumPy's files of arrays.
//
//   const FileArray images = read_npy("x.npy");                          // u8 [60000, 28, 28]
//   const std::map<std::string, FileArray> arrays = read_npz("digits.npz");
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/data/formats/file_array.h"

namespace LOCKSTEP_API lockstep {

// Reads what NumPy's save() writes, in versions 1 to 3 of its format: booleans, integers of 8 to 64 bits, floats of 16
// to 64 bits, little- and big-endian. The rows of an array in C order are read when they are used; an array in Fortran
// order is reordered in memory. Arrays of objects (which are code), records, texts, dates, complex numbers, and longer
// floats are errors that name the type. Allocates memory only after the header's sizes agree with the size of the file.
FileArray read_npy(const std::filesystem::path& path);
// The same for bytes in memory. Errors call them `name`.
FileArray parse_npy(std::string bytes, const std::string& name);

// Reads what NumPy's savez() and savez_compressed() write: a zip archive of .npy files, by their names without .npy.
// Compressed arrays are unpacked in memory. Throws for encrypted archives, other compressions, and wrong checksums.
std::map<std::string, FileArray> read_npz(const std::filesystem::path& path);
std::map<std::string, FileArray> parse_npz(std::string bytes, const std::string& name);

}  // namespace lockstep
