// A store without a server: a folder that all ranks share.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "lockstep/comm/store.h"

namespace lockstep {

// A file for each key. Ranks wait by looking again, so it is slower than a TcpStore. A process that may write to the
// folder may join the job; a job begins with an empty one, and leaves its files there.
class FileStore : public Store {
 public:
  // Made if it is missing, for this user alone. `timeout`: of each call, beyond what a get waits.
  explicit FileStore(std::filesystem::path folder,
                     std::chrono::milliseconds timeout = std::chrono::seconds(10));

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool contains(const std::string& key) override;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lockstep
