#include "apps/lockstep/bits/weights_log.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/receipt/state_digest.h"

namespace lockstep::app {

void WeightsLog::start(const TrainingStart& start) {
  module_ = start.module;
  const auto is_before = [&](const nlohmann::json& line) {
    const auto step = line.find("step");
    return step == line.end() || !step->is_number_integer() || *step <= start.position.step;
  };
  log_.emplace(path_, LogWriterOptions{.what = "--weights-log", .append = start.position.step > 0, .keep = is_before});
}

void WeightsLog::update(std::int64_t step) {
  log_->write({{"event", "weights"},
               {"step", step},
               {"weights_sha256", weights_sha256(*module_)},
               {"parameters", state_digest({.weights = state_dict(*module_)}).by_name()}});
}

std::vector<WeightsRecord> read_weights_log(const std::filesystem::path& path) {
  std::ifstream file(path);
  check(file.is_open(), "cannot open {}", path.string());
  std::vector<WeightsRecord> records;
  for (std::string line; std::getline(file, line);) {
    try {
      auto json = parse_json<nlohmann::json>(line);
      records.push_back({json.at("step"), json.at("weights_sha256"), json.at("parameters")});
    } catch (const nlohmann::json::exception& error) {
      fail("{}: line {}: {}", path.string(), records.size() + 1, error.what());
    }
  }
  return records;
}

Parameter find_parameter(const Module& module, const std::string& name) {
  auto all = module.named_parameters();
  auto buffers = module.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (auto& [its_name, p] : all) {
    if (its_name == name) return p;
  }
  fail("--inject-flip: the model has no parameter '{}'; its first is {}", name,
       all.empty() ? std::string("none") : all.front().first);
}

void BitFlip::update(std::int64_t step) {
  if (step != step_) return;
  Parameter p = find_parameter(*module_, parameter_);
  Tensor value = p.host_data();
  *static_cast<unsigned char*>(value->view().data) ^= 1;
  p.set_data(value);
}

}  // namespace lockstep::app
