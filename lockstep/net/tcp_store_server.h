// The server of a job's key-value store: one thread, many clients, each admitted only after it has proven that it knows
// the secret. A client that sends garbage, too much, too slowly or nothing at all is closed, and costs the others
// nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

struct TcpStoreServerOptions {
  // A name or a number; "0.0.0.0" and "::" are all of this machine's. All addresses but loopback need a secret.
  std::string host = "127.0.0.1";
  // 0: a free one.
  int port = 0;
  std::string secret = {};
  // A client has to finish the handshake within this time.
  std::chrono::milliseconds handshake_timeout{5'000};
};

// The address cannot be listened at; code: the system's (EADDRINUSE, EADDRNOTAVAIL …).
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
  // Closes all connections: what clients wait for fails.
  ~TcpStoreServer();

  int port() const;
  // "127.0.0.1:29500"
  std::string address() const;
  // The last error of accept() (EMFILE, for instance), or 0. Clients that could not be taken are taken once others have
  // gone.
  int accept_error() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One that other hosts reach by the name `host`: at its address if this machine has it; at all addresses if it is one
// that forwards to this machine (a service's), or, with a secret, that this machine alone knows by that name (Debian
// gives a machine's own name the address 127.0.1.1).
std::unique_ptr<TcpStoreServer> listen_for_hosts(const std::string& host, int port,
                                                 const std::string& secret);

}  // namespace lockstep
