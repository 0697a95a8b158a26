#include "lockstep/comm/gloo_device.h"

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "lockstep/comm/tcp_socket.h"

namespace lockstep {
namespace {

std::string name_of(const sockaddr_storage& address) {
  const bool v6 = address.ss_family == AF_INET6;
  if (!v6 && address.ss_family != AF_INET) return "";
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address), v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)).str();
}

}  // namespace

GlooDevice::GlooDevice(const std::string& address)
    : device_(gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()))) {
  {
    // It says where it listens to who wants a pair.
    const auto context = device_->createContext(0, 2);
    const gloo::transport::tcp::Address own(context->createPair(1)->address().bytes());
    port_ = name_of(own.getSockaddr());
  }
  // Or was it the pair's own port?
  if (sockets(true).empty()) port_.clear();
}

// A stranger who got in and said nothing is Gloo's to wait for. If he goes after the device, Gloo (of 2023) lets its thread
// wait for itself, which ends the process. So the device stays until the end then, or where nobody can tell.
GlooDevice::~GlooDevice() {
  if (port_.empty()) return;
  try {
    close_port();
    // Who called before that has been let in by now.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (sockets(false).empty()) return;
  } catch (const std::exception&) {
  }
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<gloo::transport::Device>>;
  std::lock_guard lock(mutex);
  kept.push_back(std::move(device_));
}

// Gloo has no word for it, but a socket can be told to take no packets.
void GlooDevice::close_port() const {
  if (port_.empty()) return;
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  for (int fd : sockets(true)) ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

std::vector<int> GlooDevice::sockets(bool listening) const {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 || name_of(own) != port_) continue;
    int listens = 0;
    size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && (listens != 0) == listening) found.push_back(fd);
  }
  return found;
}

}  // namespace lockstep
