// A layer, and a call of it, whose results tests compare with PyTorch's (tests/parity/layers_reference.py).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace lockstep::testing {

using CaseTensors = std::vector<Tensor>;

struct LayerCase {
  std::unique_ptr<Module> module;
  std::function<CaseTensors(const CaseTensors&)> run;
};

template <typename M, typename Run, typename... Options>
LayerCase make_case(const Run& run, Options&&... options) {
  auto module = std::make_unique<M>(std::forward<Options>(options)...);
  M& m = *module;
  return {std::move(module), [&m, run](const CaseTensors& in) -> CaseTensors { return run(m, in); }};
}

template <typename M, typename... Options>
LayerCase of_one(Options&&... options) {
  return make_case<M>([](M& m, const CaseTensors& in) { return CaseTensors{m.forward(in[0])}; },
                      std::forward<Options>(options)...);
}

// PRINTED of the script, by name.
std::map<std::string, std::function<LayerCase()>> printed_layers();

}  // namespace lockstep::testing
