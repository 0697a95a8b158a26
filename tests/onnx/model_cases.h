// The models whose files the tests check.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/onnx/export_onnx.h"

namespace lockstep::testing {

struct OnnxCase {
  std::string name;
  std::shared_ptr<Module> model;
  std::vector<Tensor> examples;  // of a batch of 2
  OnnxForward forward;
  OnnxOptions options = {};
};

// Models, every layer, and functions of several kinds. `large`: also nets that take seconds.
std::vector<OnnxCase> onnx_cases(bool large);

}  // namespace lockstep::testing
