// Options from a TOML file: `--config FILE` of every command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "apps/lockstep/options/config_text.h"

namespace lockstep::app {

// Of a file of options, in bytes.
inline constexpr std::size_t kLargestConfig = std::size_t{1} << 20;

struct Arguments {
  std::vector<std::string> words;
  // The options that came from the file, and the file.
  std::vector<std::string> from_file{};
  std::string file{};
};

// Adds --config to every command.
void add_config_option(CLI::App& app);

// Inserts the options of the file that --config names, if there is one. Options among the words count instead of those
// of the file. Throws UsageError for keys that are no option of the command, and without --allow-output for those that
// say where to write: the file may come from a stranger.
Arguments with_config(CLI::App& app, std::vector<std::string> words);
// The same for what the file has.
Arguments with_entries(CLI::App& app, std::vector<std::string> words, const std::vector<ConfigEntry>& entries,
                       const std::string& file);

}  // namespace lockstep::app
