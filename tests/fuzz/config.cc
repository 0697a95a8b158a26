#include <nlohmann/json.hpp>

#include "apps/lockstep/options/config_text.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// run.toml.
Reader config() {
  return {.read = [](const std::string& bytes) { app::parse_config(bytes, "fuzz"); },
          .seeds = {"# a run\n[train]\nbatch-size = 64\nlr = 0.1\nmodel = " + app::toml_value("a \"b\"\n\t\\") +
                    "\nhidden = [32, 'x', 16]\nnesterov = true\n"},
          .words = {"[", "]", "=", "\"", "'", "\\", "\\n", "#", ",", "\n", "train", "\r\n", "[[", "true"},
          .memory_per_byte = 200};
}

// The options of run.json.
Reader options() {
  return {.read = [](const std::string& bytes) { app::parse_options(bytes); },
          .seeds = {R"({"batch-size":64,"lr":0.1,"data":"bytes:ff00","hidden":[32,"x","16"],"nesterov":true})"},
          .words = json_words({"bytes:", "train", "true", "lr"}),
          .memory_per_byte = 200};
}

}  // namespace lockstep::fuzz
