package com.google.common.util.concurrent;

import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * Plays random calls on Guava's own rate limiters in virtual time and writes what happened, one row a call, as README.md
 * says. It is in Guava's package to reach the stopwatch that its own tests use.
 */
final class RandomCalls {
  /** No call may cost more time than this: our limiter's debt ends at a century. */
  private static final double LONGEST_MICROS = 1e13;

  private final Random random;
  private final PrintStream out;
  private final Field nextFreeTicket;
  private long now;
  /** Whether a caller's sleep is seen by the next one: one caller, or many at once. */
  private boolean sleepTakesTime;
  private long slept;

  private final RateLimiter.SleepingStopwatch stopwatch =
      new RateLimiter.SleepingStopwatch() {
        @Override
        protected long readMicros() {
          return now;
        }

        @Override
        protected void sleepMicrosUninterruptibly(long micros) {
          slept = micros;
          if (sleepTakesTime && micros > 0) {
            now += micros;
          }
        }
      };

  private RandomCalls(long seed, PrintStream out) throws ReflectiveOperationException {
    this.random = new Random(seed);
    this.out = out;
    this.nextFreeTicket = SmoothRateLimiter.class.getDeclaredField("nextFreeTicketMicros");
    this.nextFreeTicket.setAccessible(true);
  }

  public static void main(String[] arguments) throws ReflectiveOperationException {
    if (arguments.length != 3 || !arguments[0].matches("bursty|warming_up")) {
      System.err.println("usage: RandomCalls bursty|warming_up SEED CASES");
      System.exit(2);
    }
    boolean warms = arguments[0].equals("warming_up");
    PrintStream out = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16));
    out.println("call,at_us,limit,permits,max_wait_us,allowed,wait_us,next_us,stored_bits");
    RandomCalls calls = new RandomCalls(Long.parseLong(arguments[1]), out);
    for (long left = Long.parseLong(arguments[2]); left > 0; left--) {
      calls.play(warms);
    }
    out.flush();
  }

  /** A rate as our grammar writes it, and how many permits are stored or how it warms up. */
  private static final class Settings {
    long count;
    long periodMicros;
    long burstSeconds = 1;
    long warmupMicros;
    long coldThousandths;

    double permitsPerSecond() {
      return (double) count * 1e6 / (double) periodMicros;
    }

    @Override
    public String toString() {
      String rate = "smooth " + count + "/" + periodMicros + "us";
      if (warmupMicros > 0) {
        return rate + " warmup=" + warmupMicros + "us cold=" + coldThousandths / 1000 + "."
            + String.format("%03d", coldThousandths % 1000);
      }
      return burstSeconds == 1 ? rate : rate + " burst=" + count * burstSeconds;
    }
  }

  private void play(boolean warms) throws ReflectiveOperationException {
    Settings settings = new Settings();
    if (warms) {
      settings.warmupMicros = 1 + (long) (Math.exp(random.nextDouble() * Math.log(1e9)));
      long[] usual = {1000, 2000, 2500, 3000, 10000, 1000 + random.nextInt(20000)};
      settings.coldThousandths = usual[random.nextInt(usual.length)];
    } else if (random.nextInt(3) == 0) {
      settings.burstSeconds = 2 + random.nextInt(9);
    }
    draw(settings);
    now = random.nextBoolean() ? 0 : 1_700_000_000_000_000L + random.nextInt();
    sleepTakesTime = random.nextBoolean();
    SmoothRateLimiter limiter =
        warms
            ? new SmoothRateLimiter.SmoothWarmingUp(
                stopwatch, settings.warmupMicros, TimeUnit.MICROSECONDS, settings.coldThousandths / 1000.0)
            : new SmoothRateLimiter.SmoothBursty(stopwatch, settings.burstSeconds);
    limiter.setRate(settings.permitsPerSecond());
    row("make", now, settings.toString(), "", "", "", "", limiter);
    for (int left = 20 + random.nextInt(40); left > 0; left--) {
      idle(settings);
      long at = now;
      if (random.nextInt(12) == 0) {
        draw(settings);
        limiter.setRate(settings.permitsPerSecond());
        row("rate", at, settings.toString(), "", "", "", "", limiter);
        continue;
      }
      int permits = permits(settings);
      if (random.nextBoolean()) {
        slept = 0;
        limiter.acquire(permits);
        row("acquire", at, "", "" + permits, "", "1", "" + Math.max(slept, 0), limiter);
      } else {
        long timeout = timeout(settings);
        slept = 0;
        boolean allowed = limiter.tryAcquire(permits, timeout, TimeUnit.MICROSECONDS);
        row("try", at, "", "" + permits, "" + timeout, allowed ? "1" : "0",
            allowed ? "" + Math.max(slept, 0) : "", limiter);
      }
    }
  }

  private void row(
      String call, long at, String limit, String permits, String timeout, String allowed, String wait,
      SmoothRateLimiter limiter) throws ReflectiveOperationException {
    out.println(call + "," + at + "," + limit + "," + permits + "," + timeout + "," + allowed + "," + wait + ","
        + nextFreeTicket.getLong(limiter) + "," + Long.toHexString(Double.doubleToRawLongBits(limiter.storedPermits)));
  }

  /** Another rate: from one a day to a million a second, within what our grammar takes. */
  private void draw(Settings settings) {
    String before = settings.count > 0 ? settings.toString() : "";
    do {
      long[] counts = {1, 2, 5, 7, 10, 60, 1000, 1 + random.nextInt(100), 1 + random.nextInt(1_000_000)};
      settings.count = counts[random.nextInt(counts.length)];
      long[] periods = {1_000_000, 1_000_000, 60_000_000, 3_600_000_000L, 86_400_000_000L,
          1_000_000 + random.nextInt(100_000_000)};
      // A burst of several seconds is `count * burstSeconds` only if the period is a second.
      settings.periodMicros = settings.burstSeconds == 1 ? periods[random.nextInt(periods.length)] : 1_000_000;
    } while (settings.toString().equals(before)
        || settings.warmupMicros * settings.permitsPerSecond() * 2e-6 > 1e9);
  }

  private int permits(Settings settings) {
    double stable = 1e6 / settings.permitsPerSecond();
    int[] usual = {1, 1, 1, 1 + random.nextInt(10), 1 + random.nextInt(100), 1 + random.nextInt(100_000)};
    int permits = usual[random.nextInt(usual.length)];
    return Math.max(1, (int) Math.min(permits, LONGEST_MICROS / stable));
  }

  /** Time passes, on the scale of one permit or of all that can be stored. */
  private void idle(Settings settings) {
    now += random.nextInt(3) == 0 ? 0 : scale(settings);
  }

  private long timeout(Settings settings) {
    return random.nextInt(4) == 0 ? 0 : scale(settings);
  }

  private long scale(Settings settings) {
    double stable = 1e6 / settings.permitsPerSecond();
    double[] scales = {stable, 10 * stable, 1e6 * settings.burstSeconds, settings.warmupMicros, 1000};
    return (long) (random.nextDouble() * 2 * scales[random.nextInt(scales.length)]);
  }
}
