// Internal: the server's state for one client: takes received bytes, returns requests and bytes to send. This class
// does no I/O and has no clock.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/net/store_protocol.h"

namespace lockstep {

class StoreSession {
 public:
  // Starts with the greeting. `nonce` has kStoreNonceBytes bytes and is never reused.
  StoreSession(std::string_view secret, std::string nonce);

  // Takes bytes from the client. Throws if they break the protocol; the session cannot be used afterwards.
  void receive(std::string_view bytes);
  // Returns the next complete request. Returns none while a reply is due, so unread replies cannot pile up.
  std::optional<StoreRequest> next_request();
  void reply(const StoreReply& reply);

  // The bytes to send. Call sent() with the number of bytes that were sent, which removes them.
  std::string_view output() const { return std::string_view(output_).substr(sent_); }
  void sent(std::size_t bytes);

  bool admitted() const { return state_ == State::admitted; }
  // The client does not know the secret. Close the connection after sending the answer.
  bool refused() const { return state_ == State::refused; }
  // Whether the session can use more input now.
  bool wants_input() const { return !refused() && !reply_due_ && output().empty(); }

 private:
  enum class State { greeted, admitted, refused };

  State state_ = State::greeted;
  std::string_view secret_;  // owned by the server
  std::string nonce_;
  MessageMac requests_, replies_;  // set once the client is admitted
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;
  bool reply_due_ = false;
};

}  // namespace lockstep
