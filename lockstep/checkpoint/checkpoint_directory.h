// Checkpoints on disk: a folder per step, `step-00000123`, that is there whole or not at all. A manifest
// lists its files with sizes and SHA-256, so that damage is seen before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/byte_sink.h"

namespace lockstep {

// A checkpoint whose files were all there, with the sizes and checksums of the manifest, when it was opened.
struct Checkpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::vector<std::string> files;  // sorted; without the manifest

  // Where the file of that name lies. Throws if the checkpoint has none.
  std::filesystem::path file(std::string_view name) const;
};

// Reads and verifies the checkpoint in the folder `path`. An error names the file, what was found and what
// was expected.
Checkpoint open_checkpoint(const std::filesystem::path& path);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // none if there is no valid one
  std::vector<std::string> damaged;      // what is wrong with each newer one, newest first
};

// The newest valid checkpoint in `folder`, which need not exist.
LatestCheckpoint find_latest_checkpoint(const std::filesystem::path& folder);

struct CheckpointWriterOptions {
  int keep = 2;  // how many checkpoints stay in the folder, the new one counted
};

// Writes one checkpoint:
//   CheckpointWriter writer("checkpoints", step);
//   writer.add_file("weights.safetensors", [&](const ByteSink& sink) { write_safetensors(sink, tensors); });
//   writer.publish();
// A process that dies or fails at any moment leaves the older checkpoints as they were.
class CheckpointWriter {
 public:
  // Makes the folder if need be and removes what writers that died have left there. Throws if another process
  // is writing a checkpoint there, or if there is a valid one of a later step: that belongs to another run,
  // and the new one would never be the latest.
  CheckpointWriter(const std::filesystem::path& folder, std::int64_t step,
                   CheckpointWriterOptions options = {});
  // Without publish() nothing stays.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // `name` is a plain file name, `write` gives the file's bytes to the sink. The file is on the disk on
  // return.
  void add_file(std::string_view name, const std::function<void(const ByteSink&)>& write);
  void add_file(std::string_view name, std::string_view contents);

  // Once, and last. On return the checkpoint is on the disk and has replaced an older one of its step;
  // damaged ones of later steps, and all earlier ones beyond `keep`, are gone.
  void publish();

 private:
  struct FileRecord {
    std::uint64_t bytes = 0;
    std::string sha256;
  };
  // Held by one process at a time, and by none that is dead.
  class FolderLock {
   public:
    explicit FolderLock(const std::filesystem::path& folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

   private:
    int fd_;
  };

  std::string manifest() const;
  void replace_published() const;
  void remove_others() const;

  std::filesystem::path folder_;
  std::int64_t step_;
  int keep_;
  std::optional<FolderLock> lock_;
  std::filesystem::path temporary_;  // empty once published
  std::map<std::string, FileRecord> files_;
};

}  // namespace lockstep
