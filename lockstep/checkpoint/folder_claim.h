// Internal: a folder of checkpoints belongs to one run at a time: the checkpoints of two runs would replace each other.
// A run has its claim from start to end. CheckpointWriter locks the folder besides, for the time of one checkpoint,
// because a program may also write checkpoints without a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/checkpoint/file_lock.h"

namespace lockstep {

// Throws if the folder has symbolic links. It may come from somebody else, and its links name other files of the user,
// which a run would write instead of its own. The folder's own name may be a link.
void refuse_links(const std::filesystem::path& folder);

class FolderClaim {
 public:
  // Makes the folder if it does not exist, and removes what killed processes were writing there. Throws for links
  // (refuse_links()), and if another run has it after some wait: two seconds, in which a killed
  // run ends; `elsewhere` if the other run's host is not this one: if that host crashed, the file server keeps its lock
  // for a while, with NFS for 90 s by default. Also throws the errors that CheckpointWriter would throw for this step,
  // at the start instead of after an hour of training.
  FolderClaim(const std::filesystem::path& folder, std::int64_t step,
              std::chrono::milliseconds elsewhere = std::chrono::seconds(100));

  // The process of another host that has the folder now, and for which the constructor would wait: `process 4711 on
  // node0`. Empty if there is none.
  static std::string holder_elsewhere(const std::filesystem::path& folder);

 private:
  // Of the file `.lock` in the folder. The file stays: if a run removed it, two later runs could each lock a file of
  // that name.
  FileLock lock_;
};

}  // namespace lockstep
