#include "lockstep/comm/mpi/mpi_session.h"

#include <condition_variable>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/comm/heartbeat.h"

namespace lockstep {
namespace {

constexpr int kFailureTag = 0, kHeartbeatTag = 1, kShutdownTag = 2;

struct FailureMessage {
  int culprit;
  char reason[1020];  // small enough that MPI sends it without waiting for the receiver
};

}  // namespace

void check_mpi(int status, const char* doing) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  lockstep::fail("mpi: {}: {}", doing, std::string(text, static_cast<std::size_t>(length)));
}

MpiSession::MpiSession(std::chrono::milliseconds silence) : silence_(silence) {
  int running = 0, ended = 0, threads = MPI_THREAD_SINGLE;
  check_mpi(MPI_Finalized(&ended), "starting");
  check(ended == 0, "mpi: MPI ended with the last group of this process, and cannot start again");
  check_mpi(MPI_Initialized(&running), "starting");
  if (running != 0) {
    check_mpi(MPI_Query_thread(&threads), "starting");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "starting");
    started_ = true;
  }
  check(threads == MPI_THREAD_MULTIPLE,
        "mpi: MPI was started without MPI_THREAD_MULTIPLE, which groups need for their threads");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "starting");
  check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "starting");
  int size = 0;
  check_mpi(MPI_Comm_rank(world_, &rank_), "starting");
  check_mpi(MPI_Comm_size(world_, &size), "starting");
  peers_.resize(static_cast<std::size_t>(size));
  if (size > 1) heartbeats_ = std::jthread([this](const std::stop_token& stop) { send_heartbeats_until(stop); });
}

MpiSession::~MpiSession() {
  heartbeats_ = {};
  if (failure_) return;
  shut_down();
  if (failure_) return;
  MPI_Comm_free(&world_);
  if (started_) MPI_Finalize();
}

void MpiSession::fail(const RankFailure& failure) {
  std::lock_guard lock(mutex_);
  set_failure(failure);
}

void MpiSession::set_failure(const RankFailure& failure) {
  if (failure_) return;
  failure_ = failure;
  auto message = std::make_unique<FailureMessage>(FailureMessage{.culprit = failure.culprit, .reason = {}});
  failure.reason.copy(message->reason, sizeof message->reason - 1);
  std::vector<MPI_Request> requests;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    MPI_Isend(message.get(), sizeof *message, MPI_BYTE, r, kFailureTag, world_,
              &requests.emplace_back(MPI_REQUEST_NULL));
  }
  // Waits a moment, because a message is in flight only once MPI has taken it.
  const TimeLimit soon(std::chrono::milliseconds(200));
  int done = 0;
  while (done == 0 && !soon.over()) {
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
      break;
  }
  // Leaks the message: MPI, which never ends after a failure, may still read it.
  if (done == 0) (void)message.release();
}

std::optional<RankFailure> MpiSession::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool MpiSession::answers(int rank) const {
  std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(rank)].silent_for >= 0 &&
         peers_[static_cast<std::size_t>(rank)].silent_for < kRecentHeartbeats;
}

bool MpiSession::departed(int rank) const {
  std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(rank)].departed;
}

void MpiSession::listen() {
  while (!failure_) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &there, &status) != MPI_SUCCESS || there == 0) return;
    FailureMessage message;
    const int result =
        MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world_, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS) return;
    if (status.MPI_TAG == kFailureTag) {
      failure_ = {message.culprit, message.reason};
      return;
    }
    Peer& peer = peers_[static_cast<std::size_t>(status.MPI_SOURCE)];
    ++peer.received;
    peer.silent_for = 0;
    if (status.MPI_TAG != kShutdownTag) continue;
    peer.departed = true;
    any_departed_ = true;
  }
}

void MpiSession::send_empty(int rank, int tag) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (MPI_Isend(nullptr, 0, MPI_BYTE, rank, tag, world_, &peer.sending) == MPI_SUCCESS) ++peer.sent;
}

void MpiSession::send_heartbeats() {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    int sent = 0;
    // A heartbeat that is still in flight also serves as the next one.
    if (MPI_Test(&peer.sending, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent != 0) send_empty(r, kHeartbeatTag);
    if (!count_silence(r)) return;
  }
}

bool MpiSession::count_silence(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  // Counts intervals instead of reading the clock, so that a process that was stopped does not report others as lost.
  const bool is_lost = ++peer.silent_for == silence_.length() / heartbeat_interval(silence_.length()) && !peer.departed;
  if (is_lost) set_failure(no_answer(rank, silence_));
  return !is_lost;
}

void MpiSession::send_heartbeats_until(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  do {
    std::lock_guard own(mutex_);
    listen();
    if (!failure_) send_heartbeats();
  } while (!stopped.wait_for(lock, stop, heartbeat_interval(silence_.length()), [&] { return stop.stop_requested(); }));
}

void MpiSession::shut_down() {
  std::vector<int> sent(peers_.size()), coming(peers_.size());
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r == rank_) continue;
    if (MPI_Wait(&peer.sending, MPI_STATUS_IGNORE) == MPI_SUCCESS) send_empty(r, kShutdownTag);
    sent[static_cast<std::size_t>(r)] = peer.sent;
  }
  MPI_Request counts = MPI_REQUEST_NULL;
  if (MPI_Ialltoall(sent.data(), 1, MPI_INT, coming.data(), 1, MPI_INT, world_, &counts) != MPI_SUCCESS) return;
  const auto pause = heartbeat_interval(silence_.length());
  auto next_turn = std::chrono::steady_clock::now() + pause;
  for (int done = 0;;) {
    listen();
    if (failure_ || MPI_Test(&counts, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::chrono::steady_clock::now() < next_turn) continue;
    next_turn = std::chrono::steady_clock::now() + pause;
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      if (r != rank_ && !count_silence(r)) return;
    }
  }
  for (std::size_t r = 0; r < peers_.size() && !failure_; ++r) {
    while (peers_[r].received < coming[r] && !failure_) listen();
  }
  for (Peer& peer : peers_) MPI_Wait(&peer.sending, MPI_STATUS_IGNORE);
}

}  // namespace lockstep
