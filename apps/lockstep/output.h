// Prints all text of the tool. A terminal obeys control characters, and names of classes, columns, and files may come
// from strangers. So all text goes through these functions, and tests/structure rejects others.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::app {

// Prints the result of printable_text().
void print_text(std::FILE* stream, std::string_view text);

template <typename... Args>
void print_out(fmt::format_string<Args...> text, Args&&... args) {
  print_text(stdout, fmt::format(text, std::forward<Args>(args)...));
}

// Prints data for programs, such as CSV: unchanged, except on a terminal.
void print_data(std::string_view text);

// Returns names for a table or a picture: each on one line, printable, and cut to 40 bytes.
std::vector<std::string> shown_names(const std::vector<std::string>& names);

// Returns the last line of a program's output that is not empty, without "lockstep: ", as the reason of its failure.
std::string last_line(const std::filesystem::path& output);

}  // namespace lockstep::app
