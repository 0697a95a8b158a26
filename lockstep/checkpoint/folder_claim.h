// A folder of checkpoints belongs to one run at a time: the checkpoints of two runs would replace each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class FolderClaim {
 public:
  // Makes the folder if it does not exist. Throws if another run has it. A run that was just killed gets two seconds to
  // end. One of another host gets `elsewhere`: if that host crashed, the file server keeps its lock for a while, with
  // NFS for 90 s by default. Also throws the errors that CheckpointWriter would throw for this step, at the start
  // instead of after an hour of training.
  FolderClaim(const std::filesystem::path& folder, std::int64_t step,
              std::chrono::milliseconds elsewhere = std::chrono::seconds(100));
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

  // The process of another host that has the folder now: `process 4711 on node0`. Empty if there is none. A constructor
  // would wait for it.
  static std::string holder_elsewhere(const std::filesystem::path& folder);

 private:
  // The lock ends with the process. The file stays: if a run removed it, two later runs could each lock a file of that
  // name.
  FileDescriptor file_;
};

}  // namespace lockstep
