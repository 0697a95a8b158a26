// What reads bytes from outside, for fuzz.cc, which libFuzzer drives, and fuzz_test.cc: one small file for each kind.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/formats/file_array.h"

namespace lockstep::fuzz {

struct Reader {
  // Reads, or throws an Error on one line. Whatever else happens is a fault.
  std::function<void(const std::string& bytes)> read;
  // What this project's own writers make. All of them are read.
  std::vector<std::string> seeds;
  // Pieces of the format, which mutations insert.
  std::vector<std::string_view> words{};
  // Makes lengths and checksums right again, so that mutations get past them.
  std::function<void(std::string& bytes)> repair{};
  // Damaged input is an Error. Otherwise the reader has another way to refuse it.
  bool throws = true;
  // The most memory at a time: `memory`, and so much for each byte that is read.
  std::size_t memory_per_byte = 40, memory = std::size_t{4} << 20;
};

using MakeReader = Reader (*)();
// Their names, and what makes them.
const std::vector<std::pair<std::string_view, MakeReader>>& readers();

Reader checkpoint_manifest();
Reader checkpoint_state();
Reader cifar();
Reader config();
Reader csv();
Reader csv_gz();
Reader data_format();
Reader frames();
Reader handshake();
Reader idx();
Reader jpeg();
Reader npy();
Reader npz();
Reader options();
Reader png();
Reader receipt();
Reader recipe();
Reader run();
Reader safetensors();
Reader schema();
Reader signed_receipt();
Reader slurm();
Reader state_leaves();
Reader store();
Reader weights_index();

// The syntax of JSON, numbers at the edges of what integers hold, and `more`.
std::vector<std::string_view> json_words(std::vector<std::string_view> more);
// The elements of the first rows, so that a sanitizer sees what does not belong to the array.
void read_rows(const FileArray& array);
// A place for files, until the process ends.
std::string file_in_scratch(std::string_view name);
std::string read_from_scratch(std::string_view name);
// Writes a file there. Returns its path.
std::string write_in_scratch(std::string_view name, std::string_view bytes);

}  // namespace lockstep::fuzz
