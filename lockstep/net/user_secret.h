// Internal: the secret of a job on one host that was given no secret. The store makes one, and gives it to processes of
// its own user over a Unix socket, where the system tells each side the user of the other. The store's port cannot tell
// that: on loopback, it is open to all users.
#pragma once

#include <sys/types.h>

#include <string>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/tcp_socket.h"

namespace lockstep {

class UserSecret {
 public:
  // Makes the secret of the store that listens at this loopback address.
  explicit UserSecret(const SocketAddress& store);

  const std::string& secret() const { return secret_; }
  // A descriptor that is readable when a process asks.
  int fd() const { return listener_.get(); }
  // Answers a process that asks, without waiting. Returns false, with the system's error in errno, if none asks.
  bool answer() const;

 private:
  const uid_t user_;
  const std::string secret_;
  const FileDescriptor listener_;
};

// Asks the store at the address `store` ("127.0.0.1:29500") for its secret. Throws StoreRefused if another user's
// process listens there or if the store was given a secret, and ConnectionError if a retry may help.
std::string ask_for_secret(const std::string& store, Deadline deadline);

}  // namespace lockstep
