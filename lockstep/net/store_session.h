// One client as the server of a store sees it: bytes in, bytes out, requests. Knows no sockets and no clock.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/net/store_protocol.h"

namespace lockstep {

class StoreSession {
 public:
  // Begins with the greeting. `nonce` has kStoreNonceBytes, and never comes twice.
  StoreSession(std::string_view secret, std::string nonce);

  // Takes bytes of the client. Throws if they break the protocol: the session is then of no further use.
  void receive(std::string_view bytes);
  // The next request, once it is whole; none while a reply is due, so that a client's unread replies do not pile up.
  std::optional<StoreRequest> next_request();
  void reply(const StoreReply& reply);

  // The bytes to send, and how many of them were sent.
  std::string_view output() const { return std::string_view(output_).substr(sent_); }
  void sent(std::size_t bytes);

  bool admitted() const { return state_ == State::admitted; }
  // The client does not know the secret: to be closed once it was told.
  bool refused() const { return state_ == State::refused; }
  // Whether more input is of use now.
  bool wants_input() const { return !refused() && !reply_due_ && output().empty(); }

 private:
  enum class State { greeted, admitted, refused };

  State state_ = State::greeted;
  std::string_view secret_;  // the server's
  std::string nonce_;
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;
  bool reply_due_ = false;
};

}  // namespace lockstep
