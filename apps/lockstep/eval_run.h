// `lockstep eval --run DIR`: how well the model of a run does on its own validation part, or on other data.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::app {

struct EvalRunOptions {
  std::string run;
  std::string data;  // empty: the run's own validation part
  bool skip_broken = false;
  std::string confusion;   // an SVG file; empty: none
  std::int64_t worst = 5;  // how many examples to list
  std::int64_t batch_size = 256;
};

void notice_skipped(const std::string& path, std::int64_t count);

int eval_run(const EvalRunOptions& options);

}  // namespace lockstep::app
