// A folder of checkpoints belongs to one run at a time: the checkpoints of two runs would replace each other.
#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class FolderClaim {
 public:
  // Makes the folder if it does not exist. Throws if another run has it (a run that was just killed gets two seconds to
  // end). Also throws the errors that CheckpointWriter would throw for this step, at the start instead of after an hour
  // of training.
  FolderClaim(const std::filesystem::path& folder, std::int64_t step);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  // The lock ends with the process. The file stays: if a run removed it, two later runs could each lock a file of that
  // name.
  FileDescriptor file_;
};

}  // namespace lockstep
