#include "lockstep/comm/mpi/mpi_session.h"

#include <cstring>
#include <string>
#include <thread>

namespace lockstep {
namespace {

constexpr int kFailureTag = 0;

struct FailureMessage {
  int culprit;
  char reason[1020];  // small enough to be sent without the receiver's help
};

}  // namespace

void check_mpi(int status, const char* doing) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  lockstep::fail("mpi: {}: {}", doing, std::string(text, static_cast<std::size_t>(length)));
}

MpiSession::MpiSession() {
  int running = 0, ended = 0, threads = MPI_THREAD_SINGLE;
  check_mpi(MPI_Finalized(&ended), "starting");
  check(ended == 0, "mpi: it was ended with the last group of this process, and cannot be started again");
  check_mpi(MPI_Initialized(&running), "starting");
  if (running != 0) {
    check_mpi(MPI_Query_thread(&threads), "starting");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "starting");
    started_ = true;
  }
  check(threads == MPI_THREAD_MULTIPLE,
        "mpi: started for a single thread, expected MPI_THREAD_MULTIPLE: groups have threads of their own");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "starting");
  check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "starting");
}

MpiSession::~MpiSession() {
  if (failure_) return;
  MPI_Comm_free(&world_);
  if (started_) MPI_Finalize();
}

void MpiSession::fail(const RankFailure& failure) {
  std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = failure;
  FailureMessage message{.culprit = failure.culprit, .reason = {}};
  failure.reason.copy(message.reason, sizeof message.reason - 1);
  int rank = 0, size = 0;
  MPI_Comm_rank(world_, &rank);
  MPI_Comm_size(world_, &size);
  std::vector<MPI_Request> requests;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    MPI_Isend(&message, sizeof message, MPI_BYTE, r, kFailureTag, world_, &requests.emplace_back());
  }
  // It is on its way when the system has taken it.
  const TimeLimit soon(std::chrono::milliseconds(200));
  for (int done = 0; done == 0 && !soon.over();) {
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
  }
}

std::optional<RankFailure> MpiSession::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void MpiSession::listen() {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, world_, &there, &status) != MPI_SUCCESS || there == 0) return;
  FailureMessage message;
  const int result =
      MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kFailureTag, world_, MPI_STATUS_IGNORE);
  if (result == MPI_SUCCESS) failure_ = {message.culprit, message.reason};
}

}  // namespace lockstep
