// `lockstep eval --run DIR`: measures the model of a run on its own validation part, or on other data.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include "lockstep/task/run.h"

namespace lockstep::app {

struct EvalRunOptions {
  std::string run;
  std::string data;  // empty: the run's own validation part
  bool skip_broken = false;
  std::int64_t max_pixels = 0;
  std::string confusion;   // an SVG file; empty: none
  std::int64_t worst = 5;  // how many examples to list
  std::int64_t batch_size = 256;
};

// Adds --max-pixels to a command that takes data for a run.
CLI::Option* add_max_pixels(CLI::App& app, std::int64_t& max_pixels);

// Writes a notice if the run has the weights of another checkpoint than the newest: of the best epoch, for example.
void notice_best(const std::string& folder, const Run& run);

void notice_skipped(const std::string& path, std::int64_t count);

int eval_run(const EvalRunOptions& options);

}  // namespace lockstep::app
