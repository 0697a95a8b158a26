// Prints --help: options in groups, wrapped at the terminal's width.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::app {

// Sorts the options of all commands into groups.
void group_options(CLI::App& app);

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 private:
  std::string option(const CLI::Option& option) const;
  std::string entry(const std::string& left, const std::string& text) const;

  std::size_t width_;
};

// Returns COLUMNS if it is set, or the width of the terminal, or 80; limited to 40 to 100.
std::size_t help_width();

// Breaks a text between words, so that no line is longer than `width` characters unless a word is. Each line after the
// first begins with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace lockstep::app
