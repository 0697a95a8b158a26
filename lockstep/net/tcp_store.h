// Internal: a client of a TcpStoreServer.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/net/store.h"

namespace lockstep {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  // Without a secret, the client connects to loopback only and asks the store for its secret (user_secret.h).
  std::string secret = {};
  // Time during which the constructor retries.
  std::chrono::milliseconds connect_timeout{60'000};
  // Time limit of each call, in addition to the timeout of a get.
  std::chrono::milliseconds timeout{10'000};
};

// A retry cannot help: the store has another secret, belongs to another user, or is not a Lockstep store.
class StoreRefused : public Error {
 public:
  using Error::Error;
};

// Any number of threads may use one client; a waiting get does not block other calls. A call that cannot reach the
// store in time throws ConnectionError, or its subclass NoAnswer (tcp_socket.h). The next call connects again.
class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  ~TcpStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool contains(const std::string& key) override;

  // This host's numeric address on the route to the store.
  std::string local_host() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
