#include "lockstep/device/file_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/device/topology.h"

namespace lockstep {
namespace {

// Bytes of this process that are in memory; 0 if the system does not say.
std::uint64_t resident_bytes() {
  std::string text;
  try {
    text = read_file("/proc/self/statm", 4096);  // pages in all, pages in memory, ...
  } catch (const Error&) {
    return 0;
  }
  const std::size_t space = std::min(text.find(' '), text.size() - 1);
  std::uint64_t pages = 0;
  std::from_chars(text.data() + space + 1, text.data() + text.size(), pages);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::uint64_t memory_left() {
  const std::uint64_t all = total_memory();
  return (all - std::min(all, resident_bytes())) / 4 * 3;
}

std::uint64_t memory_for_file(std::uint64_t file_bytes) {
  return std::min(memory_in_proportion(file_bytes), memory_left());
}

void check_file_memory(std::uint64_t needed, std::uint64_t file_bytes, std::string_view name, std::string_view claim,
                       std::string_view way) {
  if (needed <= kMemoryOfSmallFile) return;  // saves reading /proc for each picture
  check(needed <= memory_in_proportion(file_bytes),
        "{}: {}: takes {} bytes of memory, the limit for a file of {} bytes is {}{}{}", name, claim, needed, file_bytes,
        memory_in_proportion(file_bytes), way.empty() ? "" : "; ", way);
  const std::uint64_t left = memory_left();
  check(needed <= left, "{}: {}: takes {} bytes of memory, this process has {} left for a file", name, claim, needed,
        left);
}

}  // namespace lockstep
