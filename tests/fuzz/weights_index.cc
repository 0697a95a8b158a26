#include "lockstep/checkpoint/weights_index.h"

#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

Reader weights_index() {
  return {.read = [](const std::string& bytes) { parse_weights_index(bytes, "fuzz"); },
          .seeds = {R"({"metadata": {"total_size": 8}, "weight_map": {"w": "a.safetensors", "b": "b.safetensors"}})"},
          .words = json_words({"weight_map", "../x", "/etc/passwd", "..", "a/b", "a.safetensors"}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
