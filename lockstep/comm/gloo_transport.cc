#include "lockstep/comm/gloo_transport.h"

#include <gloo/transport/context.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <mutex>
#include <set>

#include "lockstep/base/hmac.h"
#include "lockstep/comm/gloo_device.h"
#include "lockstep/comm/tcp_socket.h"

namespace lockstep {
namespace {

// Of messages over the links; users' tags are not negative.
constexpr int kAddressTag = INT_MIN, kOutcomeTag = INT_MIN + 1;
// Of transfers, apart from those of collectives.
constexpr int kNonceTag = 1'000'000, kProofTag = 1'000'001;
// For one attempt to connect, or to be recognized. Gloo waits five times as long as it is told.
constexpr std::chrono::milliseconds kGlooPatience{1000}, kProofPatience{3000};

// Gloo writes to sockets whose other end may be closed, which by default ends the process. Threads that are made
// meanwhile inherit the mask.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipes() {
    if (sigismember(&before_, SIGPIPE) != 0) return;
    // One that came is of this thread, and taken back before the mask is.
    const timespec at_once{};
    ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  sigset_t pipe_, before_;
};

// At least a little: 0 means for ever, to Gloo.
std::chrono::milliseconds time_left(const TimeLimit& limit) {
  return std::chrono::milliseconds(std::max(10, milliseconds_until(limit.end)));
}

}  // namespace

struct GlooTransport::Impl {
  explicit Impl(const std::string& address) : device(address) {}

  GlooDevice device;
  std::shared_ptr<gloo::transport::Context> context;
  std::mutex mutex;
  std::set<PeerTransfers*> under_way;
  bool broken = false;
};

class GlooTransport::PeerTransfers final : public Transfers {
 public:
  explicit PeerTransfers(Impl& transport) : transport_(transport) {
    std::lock_guard lock(transport.mutex);
    broken_ = transport.broken;
    transport.under_way.insert(this);
  }
  ~PeerTransfers() override {
    std::lock_guard lock(transport_.mutex);
    transport_.under_way.erase(this);
  }

  void receive(int source, int tag, void* data, std::size_t bytes) override {
    begin(data, bytes, source, false, [&](auto& buffer) { buffer.recv(source, static_cast<std::uint64_t>(tag)); });
  }

  void send(int destination, int tag, const void* data, std::size_t bytes) override {
    begin(const_cast<void*>(data), bytes, destination, true,
          [&](auto& buffer) { buffer.send(destination, static_cast<std::uint64_t>(tag)); });
  }

  Outcome wait(const TimeLimit& limit) override {
    for (bool sends : {false, true}) {
      for (auto& [buffer, rank, sending] : transfers_) {
        if (sending != sends) continue;
        if (broken_) return {Result::broken, broken_rank_ >= 0 ? broken_rank_ : rank};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.end - std::chrono::steady_clock::now());
        const auto patience = std::max(std::chrono::milliseconds(1), left);
        try {
          const bool complete = sends ? buffer->waitSend(patience) : buffer->waitRecv(patience);
          if (!complete) return {Result::broken, rank};
        } catch (const std::exception&) {
          return {limit.over() ? Result::timed_out : Result::broken, rank};
        }
      }
    }
    return {};
  }

  void break_off() {
    broken_ = true;
    std::lock_guard lock(mutex_);
    for (Transfer& transfer : transfers_)
      transfer.sends ? transfer.buffer->abortWaitSend() : transfer.buffer->abortWaitRecv();
  }

 private:
  struct Transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    int rank;
    bool sends;
  };

  template <typename Begin>
  void begin(void* data, std::size_t bytes, int rank, bool sends, const Begin& begin) {
    gloo::transport::UnboundBuffer* buffer;
    {
      std::lock_guard lock(mutex_);
      transfers_.push_back({transport_.context->createUnboundBuffer(data, bytes), rank, sends});
      buffer = transfers_.back().buffer.get();
    }
    if (broken_) return;
    try {
      begin(*buffer);
    } catch (const std::exception&) {  // its text names a port at best
      broken_rank_ = rank;
      broken_ = true;
    }
  }

  const NoBrokenPipes guard_;
  Impl& transport_;
  std::mutex mutex_;  // of the list
  std::vector<Transfer> transfers_;
  std::atomic<bool> broken_{false};
  int broken_rank_ = -1;
};

GlooTransport::GlooTransport(const Introduction& group, PeerLinks& links, const TimeLimit& limit) {
  const NoBrokenPipes guard;
  impl_ = std::make_unique<Impl>(group.address);
  while (!try_connect(group, links, limit)) {
    if (limit.over()) throw_failure({-1, "ranks cannot reach each other: no connection within " + limit.str()});
  }
  try {
    impl_->device.close_port();
  } catch (const std::exception&) {
    // It stays open, as Gloo means it.
  }
}

GlooTransport::~GlooTransport() {
  const NoBrokenPipes guard;
  impl_.reset();
}

// The same on all ranks: did it work for everyone?
bool GlooTransport::try_connect(const Introduction& group, PeerLinks& links, const TimeLimit& limit) {
  const auto peers = [&](const auto& visit) {
    for (int r = 0; r < group.size; ++r) {
      if (r != group.rank) visit(r);
    }
  };
  const auto receive = [&](int source, int tag) {
    auto message = links.mailbox().take(source, tag, limit, [] { return false; });
    if (!message) {
      throw_failure(links.mailbox().closed(source) ? lost(source, kClosedConnection)
                                                   : no_answer(links.silent_rank(source), limit));
    }
    return std::move(message->bytes);
  };
  auto& context = impl_->context;
  context = impl_->device.make_context(group.rank, group.size);
  // Gloo waits five times as long for a connection. Time has to be left to hear from the others whom they wait for.
  context->setTimeout(std::min(kGlooPatience, time_left(limit) / 10));
  peers([&](int r) {
    const std::vector<char> address = context->createPair(r)->address().bytes();
    const auto* begin = reinterpret_cast<const std::byte*>(address.data());
    links.send(r, kAddressTag, {{}, {begin, begin + address.size()}}, limit);
  });
  bool connected = true;
  peers([&](int r) {
    const std::vector<std::byte> address = receive(r, kAddressTag);
    const auto* begin = reinterpret_cast<const char*>(address.data());
    try {
      if (connected) context->getPair(r)->connect({begin, begin + address.size()});
    } catch (const std::exception&) {
      connected = false;  // refused, most likely: a stranger came first
    }
  });
  connected = connected && authenticate(group, limit);
  peers([&](int r) { links.send(r, kOutcomeTag, {{}, {std::byte{connected}}}, limit); });
  peers([&](int r) { connected = receive(r, kOutcomeTag).at(0) == std::byte{1} && connected; });
  return connected;
}

bool GlooTransport::authenticate(const Introduction& group, const TimeLimit& limit) {
  const TimeLimit patience(std::min(kProofPatience, time_left(limit) / 2));
  const auto size = static_cast<std::size_t>(group.size), own = static_cast<std::size_t>(group.rank);
  std::vector<std::string> sent(size), received(size);
  const auto trade = [&](int tag) {
    const auto transfers = begin();
    for (std::size_t r = 0; r < size; ++r) {
      if (r == own) continue;
      received[r].resize(sent[r].size());
      transfers->receive(static_cast<int>(r), tag, received[r].data(), received[r].size());
      transfers->send(static_cast<int>(r), tag, sent[r].data(), sent[r].size());
    }
    return transfers->wait(patience).result == Transfers::Result::done;
  };
  for (std::string& nonce : sent) nonce = random_bytes(16);
  if (!trade(kNonceTag)) return false;
  const auto proof = [&](std::size_t from, std::size_t to, const std::string& first, const std::string& second) {
    return hmac_sha256(group.key, fmt::format("gloo {} {} ", from, to) + first + second);
  };
  std::vector<std::string> expected(size);
  for (std::size_t r = 0; r < size; ++r) {
    if (r == own) continue;
    expected[r] = proof(r, own, received[r], sent[r]);
    sent[r] = proof(own, r, sent[r], received[r]);
  }
  if (!trade(kProofTag)) return false;
  for (std::size_t r = 0; r < size; ++r) {
    if (r != own && !equal_in_constant_time(received[r], expected[r])) return false;
  }
  return true;
}

void GlooTransport::break_off() {
  const NoBrokenPipes guard;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->broken = true;
    for (PeerTransfers* transfers : impl_->under_way) transfers->break_off();
  }
  for (int r = 0; r < impl_->context->size; ++r) {
    if (auto& pair = impl_->context->getPair(r)) pair->close();
  }
}

std::unique_ptr<Transfers> GlooTransport::begin() { return std::make_unique<PeerTransfers>(*impl_); }

}  // namespace lockstep
