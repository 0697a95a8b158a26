#include <algorithm>
#include <cstdint>
#include <span>

#include "tests/fuzz/reader.h"
#include "tests/temporary_folder.h"

namespace lockstep::fuzz {
namespace {

const TemporaryFolder& scratch() {
  static const TemporaryFolder folder;
  return folder;
}

}  // namespace

const std::vector<std::pair<std::string_view, MakeReader>>& readers() {
  static const std::vector<std::pair<std::string_view, MakeReader>> all{{"checkpoint_manifest", checkpoint_manifest},
                                                                        {"checkpoint_state", checkpoint_state},
                                                                        {"cifar", cifar},
                                                                        {"config", config},
                                                                        {"csv", csv},
                                                                        {"csv_gz", csv_gz},
                                                                        {"data_format", data_format},
                                                                        {"frames", frames},
                                                                        {"handshake", handshake},
                                                                        {"idx", idx},
                                                                        {"jpeg", jpeg},
                                                                        {"npy", npy},
                                                                        {"npz", npz},
                                                                        {"options", options},
                                                                        {"png", png},
                                                                        {"receipt", receipt},
                                                                        {"recipe", recipe},
                                                                        {"run", run},
                                                                        {"safetensors", safetensors},
                                                                        {"schema", schema},
                                                                        {"signed_receipt", signed_receipt},
                                                                        {"slurm", slurm},
                                                                        {"state_leaves", state_leaves},
                                                                        {"store", store},
                                                                        {"weights_index", weights_index}};
  return all;
}

std::vector<std::string_view> json_words(std::vector<std::string_view> more) {
  more.insert(more.end(), {"{",
                           "}",
                           "[",
                           "]",
                           ",",
                           ":",
                           "\"",
                           "{}",
                           "[[]]",
                           "[[[[[[[[[[[[[[[[",
                           "{\"a\":{\"a\":{\"a\":",
                           "\"a\":",
                           "null",
                           "true",
                           "-1",
                           "0",
                           "1.5",
                           "1e400",
                           "9223372036854775807",
                           "9223372036854775808",
                           "18446744073709551616",
                           "4294967296",
                           "\\u0000",
                           "\\ud800",
                           "\xc3",
                           "\xef\xbb\xbf"});
  return more;
}

void read_rows(const FileArray& array) {
  constexpr std::int64_t kMost = 1 << 16;
  if (array.row_elements() > kMost) return;
  std::vector<double> row(static_cast<std::size_t>(array.row_elements()));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(array.rows(), 32); ++i) array.read(i, 1, std::span(row));
}

std::string file_in_scratch(std::string_view name) { return (scratch() / name).string(); }

std::string read_from_scratch(std::string_view name) { return scratch().read(name); }

std::string write_in_scratch(std::string_view name, std::string_view bytes) {
  return scratch().write(name, bytes).string();
}

}  // namespace lockstep::fuzz
