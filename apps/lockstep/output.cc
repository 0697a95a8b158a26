#include "apps/lockstep/output.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "lockstep/base/printable.h"
#include "lockstep/data/formats/csv.h"

namespace lockstep::app {
namespace {

void write_all(std::FILE* stream, std::string_view text) { std::fwrite(text.data(), 1, text.size(), stream); }

}  // namespace

void print_text(std::FILE* stream, std::string_view text) { write_all(stream, printable_text(text)); }

void print_data(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  if (terminal) return print_text(stdout, text);
  write_all(stdout, text);
}

std::vector<std::string> shown_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    const std::string quoted = quoted_cell(name);
    shown.push_back(quoted.substr(1, quoted.size() - 2));
  }
  return shown;
}

std::string last_line(const std::filesystem::path& output) {
  std::ifstream file(output);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  constexpr std::string_view kPrefix = "lockstep: ";
  return last.starts_with(kPrefix) ? last.substr(kPrefix.size()) : last;
}

}  // namespace lockstep::app
