// A client of a TcpStoreServer.
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
  // Without one, nothing but loopback is connected to.
  std::string secret = {};
  // The store has to be there within this time; the constructor tries again until then.
  std::chrono::milliseconds connect_timeout{60'000};
  // The limit of each call, beyond the wait of a get.
  std::chrono::milliseconds timeout{10'000};
};

// The store answers, and there is nothing to be gained by trying again: another secret, or no Lockstep store at all.
class StoreRefused : public Error {
 public:
  using Error::Error;
};

// For any number of threads: a get that waits holds up no other call. A call that cannot reach the store throws
// ConnectionError (tcp_socket.h) within its time; the next one tries to connect anew.
class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  ~TcpStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool contains(const std::string& key) override;

  // This host's address on the way to the store, numeric.
  std::string local_host() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
