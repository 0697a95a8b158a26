#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "lockstep/comm/control_channel.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

using namespace std::chrono_literals;

// This rank's end of a connection, and the other rank's.
std::pair<PeerSockets::value_type, FileDescriptor> connected() {
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair failed");
  PeerSockets::value_type mine(2);
  mine[1] = {FileDescriptor(ends[0])};
  return {std::move(mine), FileDescriptor(ends[1])};
}

// A rank that knows the key may say that much data follows: it could end the job anyway. These inputs say nothing new.
bool claims_much(const std::string& bytes) {
  constexpr std::size_t kFrame = 144, kNumberOfBytes = 8;
  for (std::uint64_t at = 0, claimed = 0; at + kFrame <= bytes.size(); at += kFrame + claimed) {
    std::memcpy(&claimed, &bytes[at + kNumberOfBytes], sizeof claimed);
    if (claimed > std::uint64_t{1} << 20) return true;
  }
  return false;
}

// What a rank sends: a message, that it failed, and that it leaves.
std::string sent_frames() {
  auto [mine, other] = connected();
  {
    ControlChannel channel(0, std::move(mine), 60s);
    channel.send(1, 5, {{.count = 3}, std::vector<std::byte>(3, std::byte{7})}, TimeLimit(60s));
    channel.tell_failure({0, "out of luck"});
  }
  std::string bytes(4096, '\0');
  const ssize_t size = ::recv(other.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return bytes;
}

}  // namespace

// What the group's ranks send to each other on their control channel, on one host, where it has no tags.
Reader frames() {
  return {.read =
              [](const std::string& bytes) {
                if (claims_much(bytes)) return;
                auto [mine, other] = connected();
                // As much as the connection holds.
                (void)!::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
                other = FileDescriptor();
                ControlChannel channel(0, std::move(mine), 60s);
                while (!channel.closed(1)) std::this_thread::sleep_for(50us);
              },
          .seeds = {sent_frames()},
          .words = {std::string_view("\1\0\0\0", 4), std::string_view("\2\0\0\0", 4), std::string_view("\3\0\0\0", 4),
                    std::string_view("\5\0\0\0", 4), std::string_view("\xff\xff\xff\x7f", 4)},
          .throws = false};
}

}  // namespace lockstep::fuzz
