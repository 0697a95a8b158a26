// Options from a TOML file: `--config FILE` of every command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "apps/lockstep/options/config_text.h"

namespace lockstep::app {

// Largest size of a configuration file, in bytes.
inline constexpr std::size_t kLargestConfig = std::size_t{1} << 20;

struct Arguments {
  std::vector<std::string> words;
  // Names of the options that came from the file, and the file.
  std::vector<std::string> from_file{};
  std::string file{};
};

// Adds --config to every command.
void add_config_option(CLI::App& app);

// Inserts the options of the file that --config names, if there is one. Options on the command line override those of
// the file. Throws UsageError for keys that are not options of the command, and, without --allow-output, for options
// that say where to write, because the file may come from a stranger.
Arguments with_config(CLI::App& app, std::vector<std::string> words);
// The same with these entries, which were read from `file`.
Arguments with_entries(CLI::App& app, std::vector<std::string> words, const std::vector<ConfigEntry>& entries,
                       const std::string& file);

}  // namespace lockstep::app
