// A folder of checkpoints belongs to one run at a time: those of two would replace each other.
#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class FolderClaim {
 public:
  // Makes the folder if need be. Throws if another run has it (one that was just killed gets two seconds to be gone), and what
  // CheckpointWriter would say of a checkpoint of this step: better now than after an hour of training.
  FolderClaim(const std::filesystem::path& folder, std::int64_t step);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  // The lock goes with the process. The file stays: a later run could hold one that was removed.
  FileDescriptor file_;
};

}  // namespace lockstep
