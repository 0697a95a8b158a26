// Internal: gives a folder of checkpoints to one run at a time, because the checkpoints of two runs would replace each
// other. A run holds its claim from start to end. CheckpointWriter also locks the folder for the time of one
// checkpoint, because a program may write checkpoints without a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/checkpoint/file_lock.h"

namespace lockstep {

class FolderClaim {
 public:
  // Makes the folder if it does not exist, and removes what killed processes were writing there. Throws for symbolic
  // links in it: in a folder from somebody else, they could name other files of the user, which a run would then
  // overwrite. The folder's own name may be a link. Also throws if another run still has the folder after a wait: two
  // seconds, in which a killed run ends, or `elsewhere` if that run is on another host, because a file server keeps the
  // lock of a host that crashed for a while (NFS for 90 s by default). Also throws the errors that CheckpointWriter
  // would throw for this step, at the start instead of after an hour of training.
  FolderClaim(const std::filesystem::path& folder, std::int64_t step,
              std::chrono::milliseconds elsewhere = std::chrono::seconds(100));

  // Returns the process on another host that has the folder now, for which the constructor would wait: `process 4711 on
  // node0`. Empty if there is none.
  static std::string holder_elsewhere(const std::filesystem::path& folder);

 private:
  // Lock of the file `.lock` in the folder. The file stays, because if a run removed it, two later runs could each lock
  // a file of that name.
  FileLock lock_;
};

}  // namespace lockstep
