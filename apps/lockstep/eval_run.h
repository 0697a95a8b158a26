// `lockstep eval --run DIR --data PATH`: how well the model of a run does on other data.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::app {

struct EvalRunOptions {
  std::string run, data;
  std::string confusion;   // an SVG file; empty: none
  std::int64_t worst = 5;  // how many examples to list
  std::int64_t batch_size = 256;
};

int eval_run(const EvalRunOptions& options);

}  // namespace lockstep::app
