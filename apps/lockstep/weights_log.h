// The weights' hashes after every step, one line per step, to compare two runs bit by bit.
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
  std::string weights_sha256;                     // the hash in the log of `lockstep train`
  std::map<std::string, std::string> parameters;  // SHA-256 of parameters and buffers, by name
};

class WeightsLog {
 public:
  explicit WeightsLog(const std::string& path) : log_(path, {.what = "--weights-log"}) {}
  // Waits for the weights.
  void write(std::int64_t step, const Module& module);

 private:
  LogWriter log_;
};

// Throws an error that names the file and the line if the file is not such a log.
std::vector<WeightsRecord> read_weights_log(const std::filesystem::path& path);

// Finds a parameter or buffer by name. Otherwise throws an error that names the first one.
Parameter find_parameter(const Module& module, const std::string& name);
// Flips the lowest bit of the first element of a parameter or buffer on this rank.
void flip_bit(const Module& module, const std::string& parameter);

}  // namespace lockstep::app
