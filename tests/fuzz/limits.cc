#include "tests/fuzz/limits.h"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>

#include "lockstep/base/error.h"

// Of the address sanitizer. g++ has its library, but not its header.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}

namespace lockstep::fuzz {
namespace {

std::atomic<std::ptrdiff_t> live{0}, most{PTRDIFF_MAX};

void on_malloc(const volatile void*, std::size_t size) {
  if (live.fetch_add(static_cast<std::ptrdiff_t>(size)) + static_cast<std::ptrdiff_t>(size) <= most) return;
  most = PTRDIFF_MAX;  // for the message
  std::fprintf(stderr, "fuzz: an allocation of %zu bytes is beyond the memory that this input may take\n", size);
  std::abort();
}

void on_free(const volatile void* memory) {
  if (memory != nullptr) live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(memory));
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Outcome read_within_limits(const Reader& reader, const std::string& bytes) {
  static const bool counts = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0;
  check(counts, "the address sanitizer counts no memory");
  const auto allowed = static_cast<std::ptrdiff_t>(reader.memory + reader.memory_per_byte * bytes.size());
  most = live + allowed;
  const double begin = processor_seconds();
  Outcome outcome = Outcome::read;
  try {
    reader.read(bytes);
  } catch (const Error& error) {
    outcome = Outcome::refused;
    most = PTRDIFF_MAX;
    const std::string_view text = error.what();
    if (text.empty() || text.find('\n') != text.npos) {
      throw std::logic_error(fmt::format("an error of {} bytes has a line break, or no text", text.size()));
    }
  } catch (...) {
    most = PTRDIFF_MAX;
    throw;
  }
  most = PTRDIFF_MAX;
  const double seconds = processor_seconds() - begin;
  if (seconds > kMostSeconds) {
    throw std::logic_error(fmt::format("{} bytes take {:.1f} s of processor time", bytes.size(), seconds));
  }
  return outcome;
}

}  // namespace lockstep::fuzz
