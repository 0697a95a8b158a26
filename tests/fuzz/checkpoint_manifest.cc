#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// Of a checkpoint with the file `a`.
Reader checkpoint_manifest() {
  CheckpointWriter writer(file_in_scratch("checkpoints"), 5);
  writer.add_file("a", "hello");
  writer.publish();
  const std::string path = file_in_scratch("checkpoints/step-00000005");
  return {.read =
              [path](const std::string& bytes) {
                write_in_scratch("checkpoints/step-00000005/manifest.json", bytes);
                open_checkpoint(path);
              },
          .seeds = {read_from_scratch("checkpoints/step-00000005/manifest.json")},
          .words = json_words({"format", "version", "step", "files", "bytes", "sha256", "../x", "/etc/passwd", "a",
                               "lockstep-checkpoint"}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
