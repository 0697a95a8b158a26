// The fuzzer: libFuzzer, which looks for inputs that reach new code, with one of the readers.
//
//   fuzz --reader=NAME [OPTION of libFuzzer]... FOLDER
//   fuzz --list                       the names of all readers
//   fuzz --reader=NAME --seeds=DIR    writes the files that it begins with
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/fuzz/limits.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

// Made once, and never destroyed: libFuzzer leaves by _exit().
const Reader* chosen = nullptr;

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < chosen->seeds.size(); ++i) {
    std::ofstream(folder / ("seed-" + std::to_string(i)), std::ios::binary) << chosen->seeds[i];
  }
}

}  // namespace
}  // namespace lockstep::fuzz

using namespace lockstep::fuzz;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  std::string_view name, seeds;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (word == "--list") {
      for (const auto& [known, make] : readers()) std::printf("%s\n", std::string(known).c_str());
      std::exit(0);
    }
    if (word.starts_with("--reader=")) name = word.substr(9);
    if (word.starts_with("--seeds=")) seeds = word.substr(8);
  }
  for (const auto& [known, make] : readers()) {
    if (known == name) chosen = new Reader(make());
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "fuzz: unknown reader \"%s\", expected one that --list prints\n", std::string(name).c_str());
    std::exit(2);
  }
  if (!seeds.empty()) {
    write_seeds(seeds);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read_within_limits(*chosen, std::string(reinterpret_cast<const char*>(data), size));
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "fuzz: %s\n", fault.what());
    std::abort();
  }
  return 0;
}

// Half of the mutations are libFuzzer's, which know what code compares with; half know the format.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  lockstep::Dice dice(seed);
  if (dice.below(2) == 0) size = LLVMFuzzerMutate(data, size, most);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (dice.below(2) == 0) {
    bytes = damaged(std::move(bytes), dice, *chosen, most);
  } else if (chosen->repair && dice.below(2) == 0) {
    chosen->repair(bytes);
  }
  bytes.resize(std::min(bytes.size(), most));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}
