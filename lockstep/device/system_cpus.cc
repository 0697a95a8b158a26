#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/device/machine.h"

namespace lockstep {
namespace {

// The first number of a list such as "4-7,12-15"; nothing if the file is missing or does not begin with a number.
std::optional<int> first_number(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, std::size_t{1} << 20);
  } catch (const Error&) {
    return std::nullopt;
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The number N of an entry whose name is the prefix and N, such as cpu12 or node0.
std::optional<int> numbered(const std::filesystem::path& entry, std::string_view prefix) {
  const std::string name = entry.filename().string();
  int value = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), value);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(value) : std::nullopt;
}

// Sort key of a CPU: the first CPU of its package, of its caches, and of its core, and the CPU itself. CPUs that share
// more are closer in the order of these keys.
std::vector<int> place_of(const std::filesystem::path& cpu, int number) {
  std::vector<int> place;
  place.push_back(first_number(cpu / "topology/core_siblings_list").value_or(0));
  for (const char* cache : {"index3", "index2"}) {
    place.push_back(first_number(cpu / "cache" / cache / "shared_cpu_list").value_or(place.back()));
  }
  place.push_back(first_number(cpu / "topology/thread_siblings_list").value_or(number));
  place.push_back(number);
  return place;
}

}  // namespace

CpuNodes read_system_cpus(const std::filesystem::path& system) {
  struct Cpu {
    std::vector<int> place;
    int node;
  };
  std::vector<Cpu> cpus;
  std::error_code none;  // a folder that is missing or cannot be read has no entries
  for (const auto& entry : std::filesystem::directory_iterator(system / "cpu", none)) {
    const std::optional<int> number = numbered(entry.path(), "cpu");
    // An offline CPU has no folder `topology`.
    if (!number || !std::filesystem::exists(entry.path() / "topology", none)) continue;
    int node = 0;
    for (const auto& inside : std::filesystem::directory_iterator(entry.path(), none)) {
      if (const std::optional<int> found = numbered(inside.path(), "node")) node = *found;
    }
    cpus.push_back({place_of(entry.path(), *number), node});
  }
  std::ranges::sort(cpus, {}, &Cpu::place);
  std::map<int, std::size_t> index;  // index in `nodes`, by NUMA node
  CpuNodes nodes;
  for (const Cpu& cpu : cpus) {
    const auto [node, is_new] = index.try_emplace(cpu.node, nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[node->second].push_back(cpu.place.back());
  }
  return nodes;
}

std::string model_in_cpuinfo(const std::string& text) {
  constexpr std::string_view kKey = "model name";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const std::size_t colon = line.find(": ");
    if (line.starts_with(kKey) && colon != line.npos) return std::string(line.substr(colon + 2));
    at = end + 1;
  }
  return {};
}

}  // namespace lockstep
