// A device of Gloo's: a thread and, in Gloo of 2023 and later, a port at which it listens as long as it lives. (Before, each
// connection had a port of its own until it stood.)
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class GlooDevice {
 public:
  // At any port of this address.
  explicit GlooDevice(const std::string& address);
  ~GlooDevice();
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  std::shared_ptr<gloo::transport::Context> make_context(int rank, int size) { return device_->createContext(rank, size); }
  // From now on nobody gets in.
  void close_port() const;

 private:
  // This process's sockets at the port: that which listens, or those that came of it. Throws std::system_error where that
  // cannot be found out.
  std::vector<int> sockets(bool listening) const;

  std::shared_ptr<gloo::transport::Device> device_;
  std::string port_;  // "127.0.0.1:12345", or "" for none
};

}  // namespace lockstep
