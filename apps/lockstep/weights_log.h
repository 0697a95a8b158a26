// What the weights were after every step: one line a step, so that two runs can be compared to the bit.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/train/log_writer.h"

namespace lockstep::app {

struct WeightsRecord {
  std::int64_t step = 0;
  std::string weights_sha256;                      // as in the log of `lockstep train`
  std::map<std::string, std::string> parameters;   // and buffers: SHA-256 by name
};

class WeightsLog {
 public:
  explicit WeightsLog(const std::string& path) : log_(path) {}
  // Waits for the weights.
  void write(std::int64_t step, const Module& module);

 private:
  LogWriter log_;
};

// Throws, naming the file and the line, where it is not such a log.
std::vector<WeightsRecord> read_weights_log(const std::filesystem::path& path);

// A parameter or buffer by its name; where there is none, the error names the first.
Parameter find_parameter(const Module& module, const std::string& name);
// Flips the lowest bit of the first element of a parameter (or buffer) on this rank.
void flip_bit(const Module& module, const std::string& parameter);

}  // namespace lockstep::app
