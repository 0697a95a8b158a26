// Internal: the server of a job's key-value store: one thread that serves many clients. The server admits a client that
// proves that it knows the secret. It disconnects clients that send garbage, too much, too slowly, or nothing; other
// clients are not affected.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

struct TcpStoreServerOptions {
  // A name or a numeric address; "0.0.0.0" and "::" mean all addresses of this machine. Any address except loopback
  // needs a secret. Without a secret, the server makes one and gives it to processes of its user (user_secret.h).
  std::string host = "127.0.0.1";
  // 0 chooses a free port.
  int port = 0;
  std::string secret = {};
  // How long a client may take for the handshake.
  std::chrono::milliseconds handshake_timeout{5'000};
};

// The server cannot listen at the address. code() is the system's error: EADDRINUSE, EADDRNOTAVAIL, and so on.
class ListenError : public Error {
 public:
  ListenError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options = {});
  // Closes all connections, so waiting clients fail.
  ~TcpStoreServer();

  int port() const;
  // "127.0.0.1:29500"
  std::string address() const;
  // The last error of accept(), such as EMFILE, or 0. The server accepts the waiting clients after others have left.
  int accept_error() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes a server that other hosts reach by the name `host`. It listens at that address if this machine has it. It
// listens at all addresses, with a warning, if this machine lacks it (the name of a service forwards to this machine),
// or if there is a secret and the name means loopback here (Debian gives a machine's own name 127.0.1.1).
std::unique_ptr<TcpStoreServer> listen_for_hosts(const std::string& host, int port, const std::string& secret);

}  // namespace lockstep
