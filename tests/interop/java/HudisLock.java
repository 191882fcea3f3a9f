import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;

/** Takes and gives back a lock of Hudi's as it is told, line by line, and says what came of it. */
public class HudisLock {
  private static final int PATIENCE_SECONDS = 60;

  public static void main(String[] given) {
    Properties settings = new Properties();
    for (String setting : given) {
      int sign = setting.indexOf('=');
      settings.setProperty(setting.substring(0, sign), setting.substring(sign + 1));
    }
    try {
      obey(new StorageBasedLockProvider(new LockConfiguration(settings), null));
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1); // the provider's own thread would go on, and nobody learn of it
    }
  }

  private static void obey(LockProvider<?> lock) throws Exception {
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      String[] order = line.split(" ");
      switch (order[0]) {
        case "lock" -> System.out.println(lock.tryLock(Long.parseLong(order[1]), TimeUnit.SECONDS));
        case "held" -> System.out.println(lock.getLock() != null);
        case "unlock" -> {
          lock.unlock();
          System.out.println("unlocked");
        }
        case "turns" -> System.out.println(turns(lock, Integer.parseInt(order[1]), Path.of(order[2])));
        default -> throw new IllegalArgumentException(line);
      }
    }
    lock.close();
  }

  /** Takes the lock again and again; how often somebody else was inside too. */
  private static int turns(LockProvider<?> lock, int times, Path inside)
      throws InterruptedException {
    int others = 0;
    for (int turn = 0; turn < times; turn++) {
      while (!lock.tryLock(PATIENCE_SECONDS, TimeUnit.SECONDS)) {}
      try {
        Files.createFile(inside);
        Files.delete(inside);
      } catch (IOException somebody) {
        others++;
      }
      lock.unlock();
    }
    return others;
  }
}
