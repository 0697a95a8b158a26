#include "lockstep/comm/process_peers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/comm/control_channel.h"
#include "lockstep/net/comm_error.h"

namespace lockstep {
namespace {

class ProcessPeers final : public Peers {
 public:
  ProcessPeers(GroupMembership group, const TimeLimit& limit)
      : group_(std::move(group)),
        control_(group_.rank, std::move(ControlChannel::connect(group_, SocketKind::unix_domain, 1, limit)[0]),
                 limit.length()) {}

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  void watch(std::function<void(const RankFailure&)> on_lost) override { control_.watch(std::move(on_lost)); }
  bool answers(int rank) const override { return control_.answers(rank); }

  std::shared_ptr<std::byte> allocate(std::size_t bytes, const TimeLimit& limit,
                                      const std::function<std::optional<RankFailure>()>& failure) override {
    try {
      return try_allocate(bytes, limit, failure);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      // Tells the other ranks, which wait for this one; there is no shared memory yet for a report of its failure.
      control_.tell_failure({rank(), fmt::format("rank {} gave up: {}", rank(), error.what())});
      throw;
    }
  }

  void send(int destination, int tag, Message message, const TimeLimit& limit,
            const std::function<std::optional<RankFailure>()>& failure) override {
    control_.send(destination, tag, message, limit, failure);
  }
  std::optional<Message> receive(int source, int tag, const TimeLimit& limit,
                                 const std::function<bool()>& give_up) override {
    return control_.receive(source, tag, limit, give_up);
  }
  bool closed(int source) const override { return control_.closed(source); }
  bool ended(int source) const override { return control_.ended(source); }

  std::unique_ptr<Peers> subgroup(const std::vector<int>& ranks, const std::string& name,
                                  const TimeLimit& limit) override {
    return make_process_peers(subgroup_of(group_, ranks, name), limit);
  }

 private:
  std::shared_ptr<std::byte> try_allocate(std::size_t bytes, const TimeLimit& limit,
                                          const std::function<std::optional<RankFailure>()>& failure) {
    const int number = allocations_++;
    if (rank() != 0) {
      const FileDescriptor memory = control_.receive_descriptor(0, number, limit, failure);
      check(static_cast<bool>(memory),
            "process group: no descriptor for {} bytes of shared memory: too many open files", bytes);
      return map(memory, bytes);
    }
    const FileDescriptor memory(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    check(memory && ::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0,
          "process group: cannot allocate {} bytes of shared memory: {}", bytes, std::strerror(errno));
    ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    for (int r = 1; r < size(); ++r) control_.send_descriptor(r, number, memory, limit);
    return map(memory, bytes);
  }

  static std::shared_ptr<std::byte> map(const FileDescriptor& memory, std::size_t bytes) {
    struct stat status {};
    check(::fstat(memory.get(), &status) == 0 && static_cast<std::size_t>(status.st_size) == bytes,
          "process group: shared memory of {} bytes, expected {}", status.st_size, bytes);
    void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    check(start != MAP_FAILED, "process group: cannot map {} bytes: {}", bytes, std::strerror(errno));
    return {static_cast<std::byte*>(start), [bytes](std::byte* p) { ::munmap(p, bytes); }};
  }

  GroupMembership group_;
  ControlChannel control_;
  int allocations_ = 0;
};

}  // namespace

std::unique_ptr<Peers> make_process_peers(GroupMembership group, const TimeLimit& limit) {
  return std::make_unique<ProcessPeers>(std::move(group), limit);
}

}  // namespace lockstep
