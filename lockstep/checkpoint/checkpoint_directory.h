// Internal: checkpoints on disk: one folder per step, `step-00000123`, that exists whole or not at all. A manifest
// lists its files with their sizes and SHA-256, so a reader detects damage before it loads anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/file_lock.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep {

// A checkpoint. When it was opened, all of its files existed and had the sizes and checksums of the manifest.
struct Checkpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::vector<std::string> files;  // sorted; without the manifest

  // The path of the file with that name. Throws if the checkpoint has none.
  std::filesystem::path file(std::string_view name) const;
};

// Contents of a manifest.
struct CheckpointManifest {
  struct File {
    std::uint64_t bytes = 0;
    std::string sha256;
  };
  std::int64_t step = 0;
  std::map<std::string, File> files;  // by name
};

// Reads the manifest alone; the files may be damaged. Errors name the manifest.
CheckpointManifest read_manifest(const std::filesystem::path& checkpoint);

// Reads and verifies the checkpoint in the folder `path`. Errors name the file, the value found, and the value
// expected.
Checkpoint open_checkpoint(const std::filesystem::path& path);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // none if there is no valid one
  std::vector<std::string> damaged;      // the error of each newer one, newest first
};

// The newest valid checkpoint in `folder`, which need not exist.
LatestCheckpoint find_latest_checkpoint(const std::filesystem::path& folder);

// A checkpoint in memory. The bytes are those that were compared with the checksums.
struct CheckpointContents {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::map<std::string, std::string> files;  // by name; without the manifest
  std::vector<std::string> damaged;          // the error of each newer checkpoint, newest first

  // Throws if there is no file of that name.
  const std::string& file(const std::string& name) const;
};

// Reads the newest valid checkpoint in `folder`, or `folder` itself if it is a checkpoint. Returns nothing if the
// folder has no checkpoint or does not exist. Throws if all are damaged: starting anew would delete them.
std::optional<CheckpointContents> find_checkpoint(const std::filesystem::path& folder);
// The same, but throws if there is none.
CheckpointContents read_checkpoint(const std::filesystem::path& folder);

// The paths of the checkpoints in `folder`, newest first. Reads none of them.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

struct CheckpointWriterOptions {
  int keep = 2;  // number of checkpoints to keep in the folder, including the new one
  // Removes checkpoints of later steps instead of refusing to write, for a folder whose content follows from the
  // checkpoints in another folder.
  bool replace_later = false;
};

// Writes one checkpoint:
//   CheckpointWriter writer("checkpoints", step);
//   writer.add_file("weights.safetensors", [&](const ByteSink& sink) { write_safetensors(sink, tensors); });
//   writer.publish();
// Older checkpoints stay intact if the process dies or fails at any moment.
class CheckpointWriter {
 public:
  // Makes the folder if it does not exist, and removes the leftovers of writers that died. Throws if another process is
  // writing a checkpoint there, or, without replace_later, if there is a valid checkpoint of a later step, because that
  // belongs to another run and the new one would never be the latest.
  CheckpointWriter(const std::filesystem::path& folder, std::int64_t step, CheckpointWriterOptions options = {});
  // Removes everything if publish() was not called.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // `name` is a plain file name. `write` passes the file's bytes to the sink. On return the file is on disk.
  void add_file(std::string_view name, const std::function<void(const ByteSink&)>& write);
  void add_file(std::string_view name, std::string_view contents);

  // Call it once, and last. On return the checkpoint is on disk and has replaced an older one of its step. Checkpoints
  // of later steps, and earlier ones beyond `keep`, are removed.
  void publish();

 private:
  std::string manifest() const;
  void replace_published() const;
  void remove_others() const;

  std::filesystem::path folder_;
  std::int64_t step_;
  int keep_;
  FileLock lock_;                    // of the folder itself
  std::filesystem::path temporary_;  // empty once published
  std::map<std::string, CheckpointManifest::File> files_;
};

// Writes a copy of the checkpoint to another folder.
void copy_checkpoint(const CheckpointContents& checkpoint, const std::filesystem::path& folder,
                     CheckpointWriterOptions options = {});

}  // namespace lockstep
