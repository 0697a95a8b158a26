// The part of NCCL that Lockstep uses, between threads and between processes of one host. Each pair of ranks has a Unix
// socket, and a stream's thread sends and receives the work queued on it. To find mistakes it is stricter than NCCL:
// a call starts only when the previous one has finished, and sizes are compared.
#if __has_include(<nccl.h>)
#include <fcntl.h>
#include <nccl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"

namespace {

constexpr int kLook = 5;  // milliseconds after which a wait checks whether it was aborted

struct Hello {
  int rank = 0, device = 0;
  char host[64] = {};
};

// May outlive its communicator while a stream works.
struct Links {
  std::vector<int> sockets;
  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> state{ncclInProgress};

  ~Links() {
    for (int socket : sockets) {
      if (socket >= 0) ::close(socket);
    }
  }
  void fail(ncclResult_t why) {
    ncclResult_t fine = ncclSuccess;
    if (!state.compare_exchange_strong(fine, why) && fine == ncclInProgress) state = why;
  }
  // Hangs like a kernel that waits for a lost rank.
  void hang() const {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(kLook));
  }
};

struct Piece {
  bool sent;
  std::byte* data;
  std::size_t bytes;
  int peer;
};

struct Operation {
  ncclComm_t communicator;
  cudaStream_t stream;
  Piece piece;
};

// Messages in one direction of one socket, each after its size.
class Flow {
 public:
  void add(const Piece& piece) { pieces_.push_back(piece); }
  bool done() const { return pieces_.empty(); }
  // Transfers as much as possible without waiting. Returns an error, if any.
  ncclResult_t go_on(int socket) {
    while (!done()) {
      Piece& piece = pieces_.front();
      if (at_ == 0 && piece.sent) size_ = piece.bytes;
      const bool header = at_ < sizeof size_;
      std::byte* data = header ? reinterpret_cast<std::byte*>(&size_) + at_ : piece.data + (at_ - sizeof size_);
      const std::size_t left = header ? sizeof size_ - at_ : sizeof size_ + piece.bytes - at_;
      const ssize_t n = left == 0    ? 0
                        : piece.sent ? ::send(socket, data, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                     : ::recv(socket, data, left, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ncclSuccess;
      if (left > 0 && n <= 0) return ncclRemoteError;
      at_ += static_cast<std::size_t>(n);
      if (header && at_ == sizeof size_ && size_ != piece.bytes) return ncclInvalidUsage;
      if (at_ < sizeof size_ + piece.bytes) continue;
      at_ = 0;
      pieces_.pop_front();
    }
    return ncclSuccess;
  }

 private:
  std::deque<Piece> pieces_;
  std::size_t at_ = 0, size_ = 0;  // of the first message, including its size field
};

void run(Links& links, const std::vector<Piece>& pieces) {
  struct Peer {
    Flow out, in;
  };
  std::vector<Peer> peers(links.sockets.size());
  for (const Piece& p : pieces) (p.sent ? peers[p.peer].out : peers[p.peer].in).add(p);
  while (!links.aborted) {
    std::vector<pollfd> waits;
    for (std::size_t r = 0; r < peers.size(); ++r) {
      for (Flow* flow : {&peers[r].out, &peers[r].in}) {
        if (ncclResult_t wrong = flow->go_on(links.sockets[r]); wrong != ncclSuccess) {
          links.fail(wrong);
          return links.hang();
        }
        if (flow->done()) continue;
        waits.push_back({links.sockets[r], static_cast<short>(flow == &peers[r].out ? POLLOUT : POLLIN), 0});
      }
    }
    if (waits.empty()) return;
    ::poll(waits.data(), waits.size(), kLook);
  }
}

sockaddr_un address_of(const ncclUniqueId& id, int rank, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract socket disappears with the process.
  const int n = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "nccl-%.32s-%d", id.internal, rank);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
  return address;
}

bool exchange_hellos(Links& links, int socket, const Hello& own, Hello& other) {
  if (::send(socket, &own, sizeof own, MSG_NOSIGNAL) != sizeof own) return false;
  std::size_t at = 0;
  while (at < sizeof other && !links.aborted) {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, kLook) <= 0) continue;
    const ssize_t n = ::recv(socket, reinterpret_cast<char*>(&other) + at, sizeof other - at, 0);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return !links.aborted;
}

int connect_to(Links& links, const ncclUniqueId& id, int rank) {
  socklen_t length = 0;
  const sockaddr_un address = address_of(id, rank, length);
  while (!links.aborted) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
    ::close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

void connect_all(Links& links, const ncclUniqueId& id, const Hello& own, int listener) {
  const auto size = static_cast<int>(links.sockets.size());
  const auto meet = [&](int socket) {
    Hello other;
    if (!exchange_hellos(links, socket, own, other)) {
      ::close(socket);
      return links.fail(ncclRemoteError);
    }
    links.sockets[static_cast<std::size_t>(other.rank)] = socket;
    // "Duplicate GPU detected".
    if (other.device == own.device && std::strcmp(other.host, own.host) == 0) links.fail(ncclInvalidUsage);
  };
  for (int r = 0; r < own.rank && !links.aborted; ++r) meet(connect_to(links, id, r));
  for (int r = own.rank + 1; r < size && !links.aborted;) {
    pollfd wait{listener, POLLIN, 0};
    if (::poll(&wait, 1, kLook) <= 0) continue;
    meet(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    ++r;
  }
  ::close(listener);
  ncclResult_t open = ncclInProgress;
  links.state.compare_exchange_strong(open, ncclSuccess);
}

struct Group {
  int depth = 0;
  std::vector<Operation> operations;
};
thread_local Group group;

}  // namespace

struct ncclComm {
  int device = 0;
  std::shared_ptr<Links> links = std::make_shared<Links>();
  std::thread connecting;
  // Operations of an ended group. They are queued at the caller's second query.
  std::vector<Operation> pending;
  int asked = 0;
};

namespace {

void queue(ncclComm& communicator) {
  std::vector<Piece> pieces;
  for (const Operation& o : communicator.pending) pieces.push_back(o.piece);
  cuda_emulator::Stream* stream = cuda_emulator::find_stream(communicator.pending[0].stream);
  communicator.pending.clear();
  stream->enqueue([links = communicator.links, pieces = std::move(pieces)] { run(*links, pieces); });
}

ncclResult_t add(bool sent, const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                 cudaStream_t stream) {
  if (type != ncclUint8 || group.depth == 0 || communicator->links->state != ncclSuccess) return ncclInvalidUsage;
  const auto place = cuda_emulator::find(data, count);
  const bool on_device = place.kind == cuda_emulator::MemoryKind::device && place.device == communicator->device;
  cuda_emulator::Stream* on = cuda_emulator::find_stream(stream);
  if (!on_device || on == nullptr || on->device() != communicator->device) return ncclInvalidArgument;
  if (peer < 0 || peer >= static_cast<int>(communicator->links->sockets.size()) ||
      communicator->links->sockets[static_cast<std::size_t>(peer)] < 0) {
    return ncclInvalidArgument;
  }
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  group.operations.push_back({communicator, stream, {sent, bytes, count, peer}});
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random) return ncclSystemError;
  std::memset(id, 0, sizeof *id);
  for (std::size_t i = 0; i < sizeof random; ++i) std::snprintf(id->internal + 2 * i, 3, "%02x", random[i]);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *communicator = nullptr;
  if (config->size != sizeof *config || config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  auto made = std::make_unique<ncclComm>();
  made->device = cuda_emulator::current_device();
  made->links->sockets.assign(static_cast<std::size_t>(size), -1);
  Hello own{rank, made->device, {}};
  if (const char* host = std::getenv("NCCL_HOSTID")) std::snprintf(own.host, sizeof own.host, "%s", host);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(id, rank, length);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(listener, size) != 0) {
    ::close(listener);
    return ncclSystemError;
  }
  made->connecting = std::thread([links = made->links, id, own, listener] { connect_all(*links, id, own, listener); });
  *communicator = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (!communicator->pending.empty()) {
    if (++communicator->asked == 1) return *error = ncclInProgress, ncclSuccess;
    communicator->asked = 0;
    queue(*communicator);
  }
  return *error = communicator->links->state, ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  // It works on its device, then restores the thread's.
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(communicator->device);
  cudaSetDevice(before);
  communicator->links->aborted = true;
  communicator->connecting.join();
  // Lets other ranks notice.
  for (int socket : communicator->links->sockets) {
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++group.depth, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0 || group.operations.empty()) return ncclSuccess;
  ncclComm& communicator = *group.operations[0].communicator;
  for (const Operation& o : group.operations) {
    // Only what Lockstep uses is supported.
    if (o.communicator != &communicator || o.stream != group.operations[0].stream) return ncclInternalError;
  }
  if (!communicator.pending.empty()) return ncclInvalidUsage;
  communicator.pending = std::exchange(group.operations, {});
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(true, data, count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(false, data, count, type, peer, communicator, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unhandled error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

}  // extern "C"
#endif
