// Signals that end `train` in good order: after the step, with a checkpoint.
#pragma once

#include "lockstep/train/trainer.h"

namespace lockstep::app {

// Call it first in main(). Ignores SIGHUP again if it was ignored when the process started (nohup): libraries may take
// it before main(), as UCX does, which Debian 13's Open MPI loads.
void keep_ignored_signals();

// Takes SIGINT, SIGTERM, SIGHUP (which counts as SIGTERM), SIGUSR1, SIGUSR2, and SIGPIPE until the process ends. The
// last four stay ignored if they were ignored at the start (nohup). A launcher, a scheduler, and a terminal may all
// signal the same process, in any order, so repeated signals change nothing. Only a second SIGINT, at least a second
// after the first, ends the process at once.
class StopSignals {
 public:
  // One at a time. Until train(), the first signal ends the process, which has nothing to save yet.
  StopSignals();

  // Trains, and lets signals stop the trainer meanwhile. Afterwards, if the training was stopped, signals that this
  // rank gets later than the others are ignored.
  TrainingResult train(Trainer& trainer);
  // The exit status. If the training was stopped: 128 + the first signal, or 128 + SIGTERM if another rank got it.
  // Otherwise 0, or 128 + SIGPIPE if nobody reads the output any more.
  int status() const;

 private:
  void finish(bool stopped);

  bool stopped_ = false;
};

}  // namespace lockstep::app
