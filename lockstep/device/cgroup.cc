#include "lockstep/device/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  try {
    return read_file(path, std::size_t{16} << 20);
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

// Returns nothing for "max", for -1 (no limit in version 1), and for text that is not a number.
std::optional<std::uint64_t> number(const std::string& word) {
  std::uint64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [parsed, error] = std::from_chars(word.data(), end, value);
  return error == std::errc() && parsed == end ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  const std::vector<std::string> found = words(text_of(path));
  return found.size() == 1 ? number(found[0]) : std::nullopt;
}

bool lists(std::string_view list, std::string_view word) {
  return ("," + std::string(list) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

// The group of this process in the hierarchy of a controller, from /proc/self/cgroup: lines such as
// `4:cpu,cpuacct:/some/group`; version 2 has one hierarchy, `0::/some/group`.
std::optional<std::string> group_path(const std::string& proc_cgroup, bool version2, std::string_view controller) {
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// A mount point, and the part of the hierarchy that is mounted there.
struct Mount {
  bool version2;
  std::string root;
  std::string point;
};

// The mounts that may hold a controller's files, from /proc/self/mountinfo: lines such as
// `31 24 0:27 /some/group /sys/fs/cgroup/cpu rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct`.
std::vector<Mount> mounts(const std::string& mountinfo, std::string_view controller) {
  std::vector<Mount> result;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = words(line);
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.end() - dash < 4 || dash - fields.begin() < 6) continue;
    const bool version2 = dash[1] == "cgroup2";
    if (version2 || (dash[1] == "cgroup" && lists(dash[3], controller))) {
      result.push_back({version2, fields[3], fields[4]});
    }
  }
  return result;
}

struct Folder {
  bool version2;
  fs::path path;
};

// The folders of this process's group and of its visible parent groups.
std::vector<Folder> group_folders(const fs::path& root, std::string_view controller) {
  const std::string proc_cgroup = text_of(root / "proc/self/cgroup");
  std::vector<Folder> folders;
  for (const Mount& mount : mounts(text_of(root / "proc/self/mountinfo"), controller)) {
    const fs::path point = root / fs::path(mount.point).relative_path();
    folders.push_back({mount.version2, point});
    const std::optional<std::string> group = group_path(proc_cgroup, mount.version2, controller);
    if (!group) continue;
    // In a container, the own group may be mounted as the root while its path is the host's or contains "..".
    const fs::path below = fs::path(*group).lexically_relative(mount.root);
    if (below.empty() || below == "." || *below.begin() == ".." || group->find("..") != std::string::npos) continue;
    fs::path folder = point;
    for (const fs::path& part : below) folders.push_back({mount.version2, folder /= part});
  }
  return folders;
}

std::optional<int> cpu_limit(const Folder& folder) {
  std::optional<std::uint64_t> quota, period;
  if (folder.version2) {
    const std::vector<std::string> found = words(text_of(folder.path / "cpu.max"));
    if (found.size() != 2) return std::nullopt;
    quota = number(found[0]), period = number(found[1]);
  } else {
    quota = number_in(folder.path / "cpu.cfs_quota_us"), period = number_in(folder.path / "cpu.cfs_period_us");
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  const std::uint64_t cpus = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::clamp<std::uint64_t>(cpus, 1, std::numeric_limits<int>::max()));
}

std::optional<std::size_t> memory_limit(const Folder& folder) {
  return number_in(folder.path / (folder.version2 ? "memory.max" : "memory.limit_in_bytes"));
}

// Sums lines of memory.stat: "anon 4096" and "shmem 0"; in version 1 "total_rss" and "total_shmem", with child groups.
std::optional<std::size_t> memory_used(const Folder& folder) {
  std::istringstream lines(text_of(folder.path / "memory.stat"));
  std::optional<std::size_t> used;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> pair = words(line);
    const bool counts = pair.size() == 2 && (folder.version2 ? pair[0] == "anon" || pair[0] == "shmem"
                                                             : pair[0] == "total_rss" || pair[0] == "total_shmem");
    if (const auto bytes = counts ? number(pair[1]) : std::nullopt) used = used.value_or(0) + *bytes;
  }
  return used;
}

template <typename T>
void lower(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  for (const Folder& folder : group_folders(root, "cpu")) lower(limits.cpus, cpu_limit(folder));
  for (const Folder& folder : group_folders(root, "memory")) {
    const std::optional<std::size_t> before = limits.memory_bytes;
    lower(limits.memory_bytes, memory_limit(folder));
    if (limits.memory_bytes != before) limits.memory_used = memory_used(folder);
  }
  return limits;
}

}  // namespace lockstep
